-- What was always allowed is asked about once more: a digest did not have the server's command or URL.
DROP TABLE allowed;

CREATE TABLE decision (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    principal BLOB NOT NULL,
    subject TEXT NOT NULL,
    word TEXT NOT NULL
);
CREATE UNIQUE INDEX decision_subject ON decision (principal, subject);
