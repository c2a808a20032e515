-- What was always allowed is asked about once more: a digest did not have the server's command or URL.
DROP TABLE {schema}.allowed;

CREATE TABLE {schema}.decision (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    principal bytea NOT NULL,
    subject text COLLATE "C" NOT NULL,
    word text COLLATE "C" NOT NULL,
    CONSTRAINT decision_subject UNIQUE (principal, subject)
);
