CREATE TABLE batch_jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL UNIQUE CHECK (length(job_id) = 36),
    principal TEXT NOT NULL,
    request_key TEXT CHECK (length(request_key) BETWEEN 1 AND 128),
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    status TEXT NOT NULL CHECK (status IN ('PENDING', 'RUNNING', 'COMPLETED', 'FAILED')),
    total_tasks INTEGER NOT NULL CHECK (total_tasks >= 1),
    processed_tasks INTEGER NOT NULL DEFAULT 0
        CHECK (processed_tasks BETWEEN 0 AND total_tasks),
    error_message TEXT CHECK (length(error_message) BETWEEN 1 AND 500),
    duration_ms INTEGER CHECK (duration_ms >= 0),
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    created_at TEXT NOT NULL CHECK (length(created_at) = 24),
    updated_at TEXT NOT NULL CHECK (length(updated_at) = 24),
    started_at TEXT CHECK (length(started_at) = 24),
    completed_at TEXT CHECK (length(completed_at) = 24),
    lease_owner TEXT,
    lease_until TEXT CHECK (length(lease_until) = 24),
    correlation_id TEXT NOT NULL,
    CHECK ((status = 'FAILED') = (error_message IS NOT NULL)),
    CHECK ((status IN ('COMPLETED', 'FAILED')) = (completed_at IS NOT NULL)),
    CHECK ((lease_owner IS NULL) = (lease_until IS NULL)),
    CHECK (lease_owner IS NULL OR status = 'RUNNING')
);

CREATE UNIQUE INDEX batch_jobs_by_request_key ON batch_jobs (principal, request_key)
    WHERE request_key IS NOT NULL;
CREATE INDEX batch_jobs_unfinished ON batch_jobs (number)
    WHERE status IN ('PENDING', 'RUNNING');
CREATE INDEX batch_jobs_by_status ON batch_jobs (status);
CREATE INDEX batch_jobs_by_end ON batch_jobs (completed_at) WHERE completed_at IS NOT NULL;

-- The tasks of a job, until it has ended. They have a table of their own because SQLite writes a
-- whole row, a megabyte of payload included, whenever a lease is renewed.
CREATE TABLE batch_job_payloads (
    number INTEGER PRIMARY KEY,
    payload BLOB NOT NULL
);
