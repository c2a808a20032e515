CREATE TABLE {schema}.batch_jobs (
    job_id uuid PRIMARY KEY,
    principal text COLLATE "C" NOT NULL,
    request_key text COLLATE "C",
    digest bytea NOT NULL,
    payload bytea,
    status text COLLATE "C" NOT NULL DEFAULT 'PENDING',
    total_tasks bigint NOT NULL,
    processed_tasks bigint NOT NULL DEFAULT 0,
    error_message text COLLATE "C",
    duration_ms bigint,
    attempts bigint NOT NULL DEFAULT 0,
    lease_owner text COLLATE "C",
    lease_expires_at timestamptz,
    correlation_id text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    completed_at timestamptz,
    CONSTRAINT batch_jobs_request_key CHECK (char_length(request_key) BETWEEN 1 AND 128),
    CONSTRAINT batch_jobs_digest CHECK (octet_length(digest) = 32),
    CONSTRAINT batch_jobs_status
        CHECK (status IN ('PENDING', 'RUNNING', 'COMPLETED', 'FAILED')),
    CONSTRAINT batch_jobs_total_tasks CHECK (total_tasks >= 1),
    CONSTRAINT batch_jobs_processed_tasks CHECK (processed_tasks BETWEEN 0 AND total_tasks),
    CONSTRAINT batch_jobs_error_message CHECK (char_length(error_message) <= 500),
    CONSTRAINT batch_jobs_duration_ms CHECK (duration_ms >= 0),
    CONSTRAINT batch_jobs_attempts CHECK (attempts >= 0),
    CONSTRAINT batch_jobs_lease CHECK (
        status <> 'RUNNING' OR (lease_owner IS NOT NULL AND lease_expires_at IS NOT NULL)
    ),
    CONSTRAINT batch_jobs_end CHECK (
        (status IN ('COMPLETED', 'FAILED')) = (completed_at IS NOT NULL)
        AND (completed_at IS NULL OR payload IS NULL)
    )
) WITH (fillfactor = 70);

-- A payload is read once or twice, then dropped: compressing it costs more than writing it.
ALTER TABLE {schema}.batch_jobs ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE UNIQUE INDEX batch_jobs_by_request_key ON {schema}.batch_jobs (principal, request_key)
    WHERE request_key IS NOT NULL;
CREATE INDEX batch_jobs_unfinished ON {schema}.batch_jobs (created_at, job_id)
    WHERE status IN ('PENDING', 'RUNNING');
CREATE INDEX batch_jobs_ended ON {schema}.batch_jobs (status, completed_at)
    WHERE status IN ('COMPLETED', 'FAILED');
