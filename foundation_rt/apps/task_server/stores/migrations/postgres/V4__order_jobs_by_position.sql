-- The places of jobs in the queue. Each is given out under the lock of the queue, which is held until
-- the commit: so positions are committed in their order, and no job comes below one that was read.
CREATE SEQUENCE {schema}.batch_jobs_position;

ALTER TABLE {schema}.batch_jobs ADD COLUMN position bigint;

UPDATE {schema}.batch_jobs AS j SET position = placed.position FROM (
    SELECT job_id, nextval('{schema}.batch_jobs_position') AS position FROM (
        SELECT job_id FROM {schema}.batch_jobs WHERE status IN ('PENDING', 'RUNNING')
        ORDER BY created_at, job_id
    ) AS ordered
) AS placed WHERE j.job_id = placed.job_id;

ALTER TABLE {schema}.batch_jobs
    ALTER COLUMN position SET DEFAULT nextval('{schema}.batch_jobs_position');

DROP INDEX {schema}.batch_jobs_unfinished;
CREATE INDEX batch_jobs_unfinished ON {schema}.batch_jobs (position)
    WHERE status IN ('PENDING', 'RUNNING');
