-- signal_v1: keeps a signal, and makes jobs ready that await it.
--
-- Arguments
--   name .. until   the signal; its id is 16 bytes
--   last_until   until when the last number of its address is kept
--   kept     how many signals of an address are kept: the oldest go
--   now_     microseconds
-- Answer     the ids of the jobs that are ready by this, 16 bytes each; NULL: the address has this id already
-- Cost       five statements, each about rows of the address; wake_waiting_v1, which is about all jobs that await it
CREATE OR REPLACE FUNCTION {s}.signal_v1(name text, topic text, id bytea, value bytea, until bigint, last_until bigint,
    kept bigint, now_ bigint)
RETURNS bytea LANGUAGE plpgsql
    -- Plans must not depend on when the tables were last analysed: each statement has its index.
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $function$
#variable_conflict use_variable
DECLARE
    last bigint;
    jobs uuid[];
    epochs int[];
BEGIN
    -- Who begins to wait for the address locks this row too, so that neither misses the other.
    INSERT INTO {s}.signal AS o VALUES (name, topic, 0, '', '', last_until, 0)
    ON CONFLICT ON CONSTRAINT signal_pkey DO UPDATE SET until = greatest(o.until, excluded.until)
    RETURNING o.newest INTO last;
    IF EXISTS (SELECT FROM {s}.signal o WHERE o.name = signal_v1.name AND o.topic = signal_v1.topic AND o.n > 0
            AND o.id = signal_v1.id) THEN
        RETURN NULL;
    END IF;
    INSERT INTO {s}.signal VALUES (name, topic, last + 1, id, value, until, 0);
    UPDATE {s}.signal o SET newest = last + 1
    WHERE o.name = signal_v1.name AND o.topic = signal_v1.topic AND o.n = 0;
    DELETE FROM {s}.signal o
    WHERE o.name = signal_v1.name AND o.topic = signal_v1.topic AND o.n > 0 AND o.n <= last + 1 - kept;
    SELECT array_agg(a.job ORDER BY a.job), array_agg(a.epoch ORDER BY a.job) INTO jobs, epochs
    FROM {s}.awaiting a WHERE a.name = signal_v1.name AND a.topic = signal_v1.topic;
    RETURN CASE WHEN jobs IS NULL THEN '' ELSE {s}.wake_waiting_v1(jobs, epochs, now_) END;
END
$function$
