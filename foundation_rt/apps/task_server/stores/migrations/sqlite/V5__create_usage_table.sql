-- The bytes of the titles, descriptions and projects of the tasks of a job.
ALTER TABLE batch_jobs ADD COLUMN text_bytes INTEGER NOT NULL DEFAULT 0;

UPDATE batch_jobs SET text_bytes = ifnull((
    SELECT sum(
        length(CAST(json_extract(task.value, '$[0]') AS BLOB))
        + ifnull(length(CAST(json_extract(task.value, '$[1]') AS BLOB)), 0)
        + length(CAST(json_extract(task.value, '$[4]') AS BLOB))
    )
    FROM batch_job_payloads AS p, json_each(CAST(p.payload AS TEXT)) AS task
    WHERE p.number = batch_jobs.number
), 0) WHERE status IN ('PENDING', 'RUNNING');

-- What each principal stores, the tasks of its unfinished jobs included; every transaction that
-- changes tasks, or submits or fails a job, changes it.
CREATE TABLE usage (
    principal TEXT PRIMARY KEY,
    tasks INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;

INSERT INTO usage
    SELECT principal, sum(tasks), sum(bytes) FROM (
        SELECT created_by AS principal, count(*) AS tasks, sum(
            length(CAST(title AS BLOB)) + ifnull(length(CAST(description AS BLOB)), 0)
            + length(CAST(project AS BLOB))
        ) AS bytes FROM tasks GROUP BY created_by
        UNION ALL
        SELECT principal, sum(total_tasks), sum(text_bytes) FROM batch_jobs
        WHERE status IN ('PENDING', 'RUNNING') GROUP BY principal
    ) GROUP BY principal;
