-- count_levels_v1: how many of these jobs count for each level that has a limit (`count_by_level` in
-- tarry/store/rules/lanes.py). A job without a lane counts for its queue only.
--
-- Arguments  one element for each job: queue, task, lane
-- Cost       one look at limits for each level
CREATE OR REPLACE FUNCTION {s}.count_levels_v1(queue_ text[], task_ text[], lane_ text[])
RETURNS TABLE (name text, starts bigint) LANGUAGE plpgsql STABLE
AS $function$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    -- By key first: of a batch many have the same one.
    WITH keys AS (
        SELECT k.queue, k.task, k.lane, count(*) AS n FROM unnest(queue_, task_, lane_) AS k (queue, task, lane)
        GROUP BY k.queue, k.task, k.lane),
    named AS (
        SELECT 'queue:' || k.queue AS name, k.n FROM keys k
        UNION ALL SELECT 'task:' || k.task, k.n FROM keys k WHERE k.lane IS NOT NULL
        UNION ALL SELECT 'each:' || k.task || chr(31) || k.lane, k.n FROM keys k WHERE k.lane IS NOT NULL)
    SELECT n.name, sum(n.n)::bigint FROM named n
    WHERE split_part(n.name, chr(31), 1) IN (SELECT l.name FROM {s}.limits l) GROUP BY n.name;
END
$function$
