-- The last transactions that have changed something, for the processes that have the file open.
CREATE TABLE changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    change TEXT NOT NULL
);
