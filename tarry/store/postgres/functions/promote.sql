-- promote_v1: makes scheduled jobs ready that are due. For exchange_v1 alone, which has the settings.
--
-- Arguments
--   most     how many jobs at most
--   now_     microseconds
--   start    where to begin in job_scheduled: none of those in order is due earlier (see exchange.sql)
-- Answer     when the next job is due, in microseconds; NULL: none is scheduled
-- Cost       reads at most `most` entries of each of the two parts of job_scheduled, and writes these jobs. A job in a
--            lane of a limited task adds a row to lane.
CREATE OR REPLACE FUNCTION {s}.promote_v1(most int, now_ bigint, start bigint)
RETURNS bigint LANGUAGE plpgsql AS $function$
#variable_conflict use_variable
DECLARE
    in_order_from bigint := {clock} - {stored_within};
BEGIN
    WITH in_order AS (
        SELECT j.ctid AS at, j.due, j.id FROM {s}.job j
        WHERE j.state = 0 AND NOT j.out_of_order AND j.due >= start AND j.due <= now_
        ORDER BY j.due, j.id LIMIT most FOR UPDATE SKIP LOCKED),
    unordered AS (
        SELECT j.ctid AS at, j.due, j.id FROM {s}.job j
        WHERE j.state = 0 AND j.out_of_order AND j.due <= now_
        ORDER BY j.due, j.id LIMIT most FOR UPDATE SKIP LOCKED),
    promoted AS (
        UPDATE {s}.job j SET state = 1, state_since = now_, out_of_order = j.due < in_order_from
            OR abs(j.claim_order) > 1
        WHERE j.ctid = ANY (ARRAY(
            SELECT b.at FROM (SELECT * FROM in_order UNION ALL SELECT * FROM unordered) AS b
            ORDER BY b.due, b.id LIMIT most))
        RETURNING j.queue, j.claim_order, j.task, j.lane)
    INSERT INTO {s}.lane (queue, band, task, lane)
    SELECT DISTINCT p.queue, (p.claim_order < 0)::int - (p.claim_order > 0)::int, p.task, coalesce(p.lane, '')
    FROM promoted p
    WHERE p.lane IS NOT NULL AND EXISTS (SELECT FROM {s}.limits e WHERE e.name = 'each:' || p.task);
    RETURN least(
        (SELECT j.due FROM {s}.job j WHERE j.state = 0 AND NOT j.out_of_order AND j.due >= start
            ORDER BY j.due LIMIT 1),
        (SELECT j.due FROM {s}.job j WHERE j.state = 0 AND j.out_of_order ORDER BY j.due LIMIT 1));
END
$function$
