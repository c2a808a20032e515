-- The bytes of the titles, descriptions and projects of the tasks of a job.
ALTER TABLE {schema}.batch_jobs ADD COLUMN text_bytes bigint NOT NULL DEFAULT 0;

UPDATE {schema}.batch_jobs SET text_bytes = (
    SELECT coalesce(sum(
        octet_length(task ->> 0) + coalesce(octet_length(task ->> 1), 0)
        + octet_length(task ->> 4)
    ), 0)
    FROM jsonb_array_elements(convert_from(payload, 'UTF8')::jsonb) AS task
) WHERE status IN ('PENDING', 'RUNNING') AND payload IS NOT NULL;

-- What each principal stores, the tasks of its unfinished jobs included. The transaction that
-- changes it does so after it has changed the counts, and in the order of the key.
CREATE TABLE {schema}.usage (
    principal text COLLATE "C" PRIMARY KEY,
    tasks bigint NOT NULL,
    bytes bigint NOT NULL
) WITH (fillfactor = 50);

INSERT INTO {schema}.usage
    SELECT principal, sum(tasks), sum(bytes) FROM (
        SELECT created_by AS principal, count(*) AS tasks, sum(
            octet_length(title) + coalesce(octet_length(description), 0) + octet_length(project)
        ) AS bytes FROM {schema}.tasks GROUP BY created_by
        UNION ALL
        SELECT principal, sum(total_tasks), sum(text_bytes) FROM {schema}.batch_jobs
        WHERE status IN ('PENDING', 'RUNNING') GROUP BY principal
    ) AS stored GROUP BY principal;
