-- ended_levels_v1: the levels that changes lower by the attempts that they have ended, and by how much.
--
-- Arguments
--   c_id, c_kind, k_was   see apply.sql
--   made     the places of the changes that were made
--   e_*      of ending_v1
-- Cost       one look at job_pkey for each, unless ending_v1 has made it; that of count_levels_v1
CREATE OR REPLACE FUNCTION {s}.ended_levels_v1(c_id uuid[], c_kind int[], k_was smallint[], made int[], e_id uuid[],
    e_queue text[], e_task text[], e_lane text[], OUT names text[], OUT counts bigint[]) LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    ended uuid[] := ARRAY(SELECT c_id[m] FROM unnest(made) AS m WHERE k_was[c_kind[m]] = 2);
BEGIN
    names := '{}';
    counts := '{}';
    IF e_id IS NULL THEN
        SELECT array_agg(j.queue), array_agg(j.task), array_agg(j.lane) INTO e_queue, e_task, e_lane
        FROM {s}.job j WHERE j.id = ANY (ended);
    ELSE
        SELECT array_agg(e.queue), array_agg(e.task), array_agg(e.lane) INTO e_queue, e_task, e_lane
        FROM unnest(e_id, e_queue, e_task, e_lane) AS e (id, queue, task, lane) WHERE e.id = ANY (ended);
    END IF;
    IF e_queue IS NOT NULL THEN
        SELECT coalesce(array_agg(n.name), '{}'), coalesce(array_agg(n.starts), '{}') INTO names, counts
        FROM {s}.count_levels_v1(e_queue, e_task, e_lane) AS n;
    END IF;
END
$function$
