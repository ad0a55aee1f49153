-- ended_v1: lowers the levels of attempts that ended, and opens the lanes that were closed because they were full.
--
-- Arguments
--   e_*      one element for each attempt that was to end: id, queue, task and lane of its job before the change
--   made     ids of the jobs whose change was made; the others do not count
--   now_     microseconds
-- Cost       locks one row of level for each limit of these attempts; writes these and their closed rows of lane.
--            Nothing else if no limit concerns them.
CREATE OR REPLACE FUNCTION {s}.ended_v1(e_id uuid[], e_queue text[], e_task text[], e_lane text[], made uuid[],
    now_ bigint)
RETURNS void LANGUAGE plpgsql
    SET enable_nestloop = on  -- apply_v1 has it off
AS $function$
#variable_conflict use_column
DECLARE
    names text[];
    counts bigint[];
BEGIN
    WITH ended AS (
        SELECT queue, task, lane FROM unnest(e_id, e_queue, e_task, e_lane) AS e (id, queue, task, lane)
        WHERE id = ANY (made)),
    named AS (
        SELECT 'queue:' || queue AS name FROM ended
        UNION ALL SELECT 'task:' || task FROM ended WHERE lane IS NOT NULL
        UNION ALL SELECT 'each:' || task || chr(31) || lane FROM ended WHERE lane IS NOT NULL),
    counted AS (
        SELECT name, count(*) AS n FROM named
        WHERE split_part(name, chr(31), 1) IN (SELECT l.name FROM {s}.limits l) GROUP BY name)
    SELECT array_agg(name), array_agg(n) INTO names, counts FROM counted;
    IF names IS NULL THEN
        RETURN;
    END IF;
    PERFORM FROM {s}.level WHERE name = ANY (names) ORDER BY starts_with(name, 'each:'), name FOR UPDATE;
    UPDATE {s}.level l SET running = greatest(0, l.running - e.n)
    FROM unnest(names, counts) AS e (name, n) WHERE l.name = e.name;
    -- After the levels, which a claim locks before it closes their lanes.
    UPDATE {s}.lane SET again = NULL WHERE again IS NOT NULL AND (task, lane) IN (
        SELECT e.task, e.lane FROM unnest(e_id, e_task, e_lane) AS e (id, task, lane) WHERE e.id = ANY (made));
    DELETE FROM {s}.level
    WHERE name = ANY (names) AND starts_with(name, 'each:') AND running = 0 AND next <= now_;
END
$function$
