-- ended_v1: lowers the levels of attempts that ended, and opens the lanes that were closed because they were full.
--
-- Arguments
--   e_id, e_queue, e_task, e_lane   one element for each attempt: id, queue, task and lane of its job
--   made     ids of those that count
--   now_     microseconds
-- Cost       those of count_levels_v1 and change_levels_v1
CREATE OR REPLACE FUNCTION {s}.ended_v1(e_id uuid[], e_queue text[], e_task text[], e_lane text[], made uuid[],
    now_ bigint)
RETURNS void LANGUAGE plpgsql
AS $function$
DECLARE
    ended record;
BEGIN
    SELECT array_agg(e.queue) AS queues, array_agg(e.task) AS tasks, array_agg(e.lane) AS lanes INTO ended
    FROM unnest(e_id, e_queue, e_task, e_lane) AS e (id, queue, task, lane) WHERE e.id = ANY (made);
    SELECT array_agg(n.name) AS names, array_agg(n.starts) AS counts, array_agg(0::bigint) AS starts INTO ended
    FROM {s}.count_levels_v1(ended.queues, ended.tasks, ended.lanes) AS n;
    IF cardinality(ended.names) > 0 THEN
        PERFORM {s}.change_levels_v1(ended.names, ended.starts, ended.counts, false, now_);
    END IF;
END
$function$
