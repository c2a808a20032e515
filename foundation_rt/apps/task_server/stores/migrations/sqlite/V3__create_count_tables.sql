-- How many tasks there are; every transaction that changes tasks changes these with them. The rows
-- of the project '' are for all projects: no project has that name.
CREATE TABLE task_counts (
    project TEXT NOT NULL,
    status TEXT NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (project, status)
) WITHOUT ROWID;

-- The same for tasks with a due date.
CREATE TABLE due_counts (
    project TEXT NOT NULL,
    status TEXT NOT NULL,
    due_date TEXT NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (project, status, due_date)
) WITHOUT ROWID;

INSERT INTO task_counts
    SELECT project, status, count(*) FROM tasks GROUP BY project, status;
INSERT INTO task_counts
    SELECT '', status, sum(count) FROM task_counts GROUP BY status;
INSERT INTO due_counts
    SELECT project, status, due_date, count(*) FROM tasks WHERE due_date IS NOT NULL
    GROUP BY project, status, due_date;
INSERT INTO due_counts
    SELECT '', status, due_date, sum(count) FROM due_counts GROUP BY status, due_date;
