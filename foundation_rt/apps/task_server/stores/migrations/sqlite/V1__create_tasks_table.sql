-- Members that change, and those that conditions read, come before the long texts: a row of which
-- neither is read then costs no further pages.
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    status TEXT NOT NULL CHECK (status IN ('TODO', 'IN_PROGRESS', 'DONE')),
    due_date TEXT CHECK (due_date IS date(due_date, '+0 days')),
    project TEXT NOT NULL CHECK (
        typeof(project) = 'text' AND length(project) BETWEEN 1 AND 100
        AND instr(project, char(0)) = 0
    ),
    -- 0 LOW, 1 NORMAL, 2 HIGH, 3 URGENT
    priority INTEGER NOT NULL CHECK (typeof(priority) = 'integer' AND priority BETWEEN 0 AND 3),
    version INTEGER NOT NULL DEFAULT 1 CHECK (typeof(version) = 'integer' AND version >= 1),
    claimed_by TEXT CHECK (length(claimed_by) >= 1),
    claim_expires_at TEXT CHECK (length(claim_expires_at) = 24),
    job_id TEXT NOT NULL CHECK (length(job_id) = 36),
    created_by TEXT NOT NULL,
    created_at TEXT NOT NULL CHECK (length(created_at) = 24),
    updated_at TEXT NOT NULL CHECK (length(updated_at) = 24),
    title TEXT NOT NULL CHECK (
        typeof(title) = 'text' AND length(title) BETWEEN 1 AND 255
        AND instr(title, char(0)) = 0
        AND trim(title, char(9, 10, 11, 12, 13, 32)) <> ''
    ),
    description TEXT CHECK (
        typeof(description) IN ('text', 'null') AND length(description) <= 2000
        AND instr(description, char(0)) = 0
    ),
    -- Title and description, case-folded: what the words of a list are looked for in.
    search_text TEXT NOT NULL,
    CHECK ((claimed_by IS NULL) = (claim_expires_at IS NULL)),
    CHECK (claimed_by IS NULL OR status = 'IN_PROGRESS')
);

-- The id is the last column of every index, ascending.
CREATE INDEX tasks_by_status ON tasks (status);
CREATE INDEX tasks_by_due_date ON tasks (due_date);
CREATE INDEX tasks_by_created_at ON tasks (created_at);
CREATE INDEX tasks_by_updated_at ON tasks (updated_at);
CREATE INDEX tasks_by_priority ON tasks (priority);
CREATE INDEX tasks_by_project ON tasks (project);
CREATE INDEX tasks_by_project_status ON tasks (project, status);
CREATE INDEX tasks_by_job ON tasks (job_id);
CREATE INDEX tasks_by_worker ON tasks (claimed_by) WHERE claimed_by IS NOT NULL;

-- What can be claimed, in the order of claims; '~' is behind every date.
CREATE INDEX tasks_to_claim ON tasks (priority DESC, ifnull(due_date, '~'))
    WHERE status = 'TODO';
CREATE INDEX tasks_to_claim_of_project ON tasks (project, priority DESC, ifnull(due_date, '~'))
    WHERE status = 'TODO';
CREATE INDEX tasks_by_claim_end ON tasks (claim_expires_at)
    WHERE claim_expires_at IS NOT NULL;
