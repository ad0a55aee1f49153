-- signal_v1: keeps a signal, and makes jobs ready that await it, up to a number of them; the rest is left for
-- `SqlSignals.wake_more` in tarry/store/sql/flow_signals.py, which says what the row number -1 of an address is.
--
-- Arguments
--   name .. until   the signal; its id is 16 bytes
--   last_until   until when the last number of its address is kept
--   kept     how many signals of an address are kept: the oldest go
--   most     how many jobs to wake
--   now_     microseconds
-- Answer     awake: the ids of the jobs that are ready by this, 16 bytes each; more: there may be others. Nothing if
--            the address has this id already
-- Cost       six statements, each about rows of the address; wake_waiting_v1, for as many jobs as the bound
CREATE OR REPLACE FUNCTION {s}.signal_v1(name text, key text, id bytea, value bytea, until bigint, last_until bigint,
    kept bigint, most bigint, now_ bigint, OUT awake bytea, OUT more boolean)
LANGUAGE plpgsql
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
    awake := '';
    more := false;
    -- Who begins to wait for the address locks this row too, so that neither misses the other.
    INSERT INTO {s}.signal AS o VALUES (name, key, 0, '', '', last_until, 0)
    ON CONFLICT ON CONSTRAINT signal_pkey DO UPDATE SET until = greatest(o.until, excluded.until)
    RETURNING o.newest INTO last;
    IF EXISTS (SELECT FROM {s}.signal o WHERE o.name = signal_v1.name AND o.key = signal_v1.key AND o.n > 0
            AND o.id = signal_v1.id) THEN
        RETURN;
    END IF;
    INSERT INTO {s}.signal VALUES (name, key, last + 1, id, value, until, 0);
    UPDATE {s}.signal o SET newest = last + 1
    WHERE o.name = signal_v1.name AND o.key = signal_v1.key AND o.n = 0;
    DELETE FROM {s}.signal o
    WHERE o.name = signal_v1.name AND o.key = signal_v1.key AND o.n > 0 AND o.n <= last + 1 - kept;
    SELECT array_agg(w.job ORDER BY w.job), array_agg(w.epoch ORDER BY w.job) INTO jobs, epochs
    -- Others would look, and not find this one.
    FROM (SELECT a.job, a.epoch FROM {s}.awaiting a WHERE a.name = signal_v1.name AND a.key = signal_v1.key
        AND a.seen <= last
        ORDER BY a.job LIMIT most) w;
    IF jobs IS NULL THEN
        RETURN;
    END IF;
    more := cardinality(jobs) = most;
    IF more THEN
        INSERT INTO {s}.signal AS o VALUES (name, key, -1, uuid_send(jobs[most]), '', 0, last + 1)
        ON CONFLICT ON CONSTRAINT signal_pkey DO UPDATE SET id = excluded.id, newest = excluded.newest;
    END IF;
    awake := {s}.wake_waiting_v1(jobs, epochs, now_);
END
$function$
