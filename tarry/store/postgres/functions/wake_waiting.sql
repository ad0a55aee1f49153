-- wake_waiting_v1: makes jobs ready that await a signal which has come, as `rules.wake` in tarry/model/flow/rules.py.
--
-- Arguments
--   w_*      one element for each job: its id, and the epoch in which it waits
--   now_     microseconds
-- Answer     the ids of those that slept in that epoch, 16 bytes each
-- Cost       two statements, each of which looks up one row a job. With limits also one row of lane for each lane.
CREATE OR REPLACE FUNCTION {s}.wake_waiting_v1(w_job uuid[], w_epoch int[], now_ bigint)
RETURNS bytea LANGUAGE plpgsql AS $function$
DECLARE
    in_order_from bigint := {clock} - {stored_within};
    limited boolean := EXISTS (SELECT FROM {s}.limits l);
    answer bytea;
BEGIN
    DELETE FROM {s}.awaiting a USING unnest(w_job, w_epoch) AS w (job, epoch)
    WHERE a.job = ANY (w_job) AND a.job = w.job AND a.epoch = w.epoch;
    WITH woken AS (
        UPDATE {s}.job j SET state = 1, due = least(j.due, now_), state_since = now_,
            out_of_order = least(j.due, now_) < in_order_from OR abs(j.claim_order) > 1
        FROM unnest(w_job, w_epoch) AS w (job, epoch)
        WHERE j.id = ANY (w_job) AND j.id = w.job AND j.epoch = w.epoch AND j.state + 0 = 0
        RETURNING j.id, j.queue, j.claim_order, j.task, j.lane),
    opened AS (
        INSERT INTO {s}.lane (queue, band, task, lane)
        SELECT DISTINCT r.queue, (r.claim_order < 0)::int - (r.claim_order > 0)::int, r.task, r.lane FROM woken r
        WHERE limited AND r.lane IS NOT NULL AND EXISTS (SELECT FROM {s}.limits e WHERE e.name = 'each:' || r.task))
    SELECT string_agg(uuid_send(r.id), '') INTO answer FROM woken r;
    RETURN coalesce(answer, '');
END
$function$
