-- count_levels_v1: how many of these jobs count for each level that has a limit (`count_by_level` in
-- tarry/store/rules/lanes.py). A job without a lane counts for its queue only.
--
-- Arguments  one element for each job: queue, task, lane
-- Cost       two looks at limits for each task, and one for each queue
CREATE OR REPLACE FUNCTION {s}.count_levels_v1(queue_ text[], task_ text[], lane_ text[])
RETURNS TABLE (name text, starts bigint) LANGUAGE plpgsql STABLE
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    -- By key first: of a batch many have the same one, and most have the same task.
    WITH keys AS MATERIALIZED (
        SELECT k.queue, k.task, k.lane, count(*) AS n FROM unnest(queue_, task_, lane_) AS k (queue, task, lane)
        GROUP BY k.queue, k.task, k.lane),
    limited AS MATERIALIZED (
        SELECT n.name FROM (
            SELECT 'queue:' || q.queue AS name FROM (SELECT DISTINCT k.queue FROM keys k) AS q
            UNION ALL SELECT p.kind || t.task FROM (SELECT DISTINCT k.task FROM keys k WHERE k.lane IS NOT NULL) AS t,
                (VALUES ('task:'), ('each:')) AS p (kind)) AS n
        WHERE (SELECT true FROM {s}.limits l WHERE l.name = n.name))
    SELECT l.name, sum(k.n)::bigint FROM keys k JOIN limited l ON l.name = 'queue:' || k.queue GROUP BY l.name
    UNION ALL SELECT l.name, sum(k.n)::bigint FROM keys k JOIN limited l ON l.name = 'task:' || k.task
    WHERE k.lane IS NOT NULL GROUP BY l.name
    UNION ALL SELECT l.name || chr(31) || k.lane, sum(k.n)::bigint FROM keys k
    JOIN limited l ON l.name = 'each:' || k.task WHERE k.lane IS NOT NULL GROUP BY l.name, k.lane;
END
$function$
