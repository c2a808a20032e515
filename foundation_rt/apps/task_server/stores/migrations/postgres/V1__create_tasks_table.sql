-- Text is compared by code points (COLLATE "C"), so that lists have the order that SQLite gives.
CREATE TABLE {schema}.tasks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    title text COLLATE "C" NOT NULL,
    description text COLLATE "C",
    status text COLLATE "C" NOT NULL,
    due_date date,
    project text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    version bigint NOT NULL DEFAULT 1,
    claimed_by text COLLATE "C",
    claim_expires_at timestamptz,
    job_id uuid NOT NULL,
    created_by text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    updated_at timestamptz NOT NULL DEFAULT date_trunc('milliseconds', now()),
    search_text text COLLATE "C" NOT NULL,
    CONSTRAINT tasks_title CHECK (char_length(title) <= 255 AND btrim(title, E' \t\n\r') <> ''),
    CONSTRAINT tasks_description CHECK (char_length(description) <= 2000),
    CONSTRAINT tasks_status CHECK (status IN ('TODO', 'IN_PROGRESS', 'DONE')),
    CONSTRAINT tasks_due_date CHECK (due_date BETWEEN '0001-01-01' AND '9999-12-31'),
    CONSTRAINT tasks_project CHECK (char_length(project) BETWEEN 1 AND 100),
    CONSTRAINT tasks_priority CHECK (priority BETWEEN 0 AND 3),
    CONSTRAINT tasks_version CHECK (version >= 1),
    CONSTRAINT tasks_claim CHECK (
        (claimed_by IS NULL) = (claim_expires_at IS NULL)
        AND (claimed_by IS NULL OR status = 'IN_PROGRESS')
    )
) WITH (fillfactor = 90);

CREATE INDEX tasks_by_status ON {schema}.tasks (status, id);
CREATE INDEX tasks_by_due_date ON {schema}.tasks (due_date, id);
CREATE INDEX tasks_by_priority ON {schema}.tasks (priority, id);
CREATE INDEX tasks_by_updated_at ON {schema}.tasks (updated_at, id);
-- Tasks are created in the order of this column: a block range index costs a job nothing.
CREATE INDEX tasks_by_created_at ON {schema}.tasks USING brin (created_at);
CREATE INDEX tasks_by_project ON {schema}.tasks (project, status, id);
CREATE INDEX tasks_by_job ON {schema}.tasks (job_id, id);
CREATE INDEX tasks_by_worker ON {schema}.tasks (claimed_by, id) WHERE claimed_by IS NOT NULL;

-- What can be claimed, in the order in which it is. The last column is the time from which it can
-- be: claims that have not ended are passed over within the index.
CREATE INDEX tasks_claimable ON {schema}.tasks (
    priority DESC, due_date, id,
    (CASE WHEN status = 'TODO' THEN '-infinity'::timestamptz ELSE claim_expires_at END)
) WHERE status = 'TODO' OR claim_expires_at IS NOT NULL;
CREATE INDEX tasks_claimable_by_project ON {schema}.tasks (
    project, priority DESC, due_date, id,
    (CASE WHEN status = 'TODO' THEN '-infinity'::timestamptz ELSE claim_expires_at END)
) WHERE status = 'TODO' OR claim_expires_at IS NOT NULL;

-- How many tasks there are of each project, status and due date, and with the project '' those of
-- all projects; 'infinity' is no due date. The transaction that changes tasks adds to the counts,
-- as its last statement and in the order of the key: so their locks are held for a commit only, and
-- no two transactions wait for each other. A negative count cannot be a CHECK, since INSERT ... ON
-- CONFLICT checks the row that it proposes, which here is a difference.
CREATE TABLE {schema}.task_counts (
    project text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    due_date date NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (project, status, due_date)
) WITH (fillfactor = 50);
