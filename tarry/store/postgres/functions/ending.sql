-- ending_v1: the attempts that changes are to end, with their jobs as they are before, where that is not to be seen
-- afterwards: a change gives another queue, deletes the job, or is followed by another one.
--
-- Arguments  those of apply_v1
-- Answer     one element for each attempt: id, queue, task and lane of its job; e_id NULL: look afterwards
-- Cost       one look at job_pkey for each; locks its row. Mostly nothing.
CREATE OR REPLACE FUNCTION {s}.ending_v1(c_id uuid[], c_kind int[], k_was smallint[], k_epoch int[], k_to smallint[],
    k_queue text[], k_owner text[], singly boolean, OUT e_id uuid[], OUT e_queue text[], OUT e_task text[],
    OUT e_lane text[]) LANGUAGE plpgsql
    -- A plan that was made for a few changes must not compare each of a thousand with each.
    SET enable_nestloop = off
AS $function$
#variable_conflict use_column
BEGIN
    IF singly OR array_position(k_to, NULL) IS NOT NULL OR EXISTS (SELECT FROM unnest(k_queue) AS q WHERE q IS NOT NULL) THEN
        SELECT coalesce(array_agg(j.id), '{}'), array_agg(j.queue), array_agg(j.task), array_agg(j.lane)
        INTO e_id, e_queue, e_task, e_lane FROM (
            SELECT id, queue, task, lane FROM {s}.job
            WHERE state + 0 = 2 AND id = ANY (c_id) AND (id, epoch, owner) IN (
                SELECT p.id, k.epoch, k.owner FROM unnest(c_id, c_kind) AS p (id, kind)
                JOIN unnest(k_was, k_epoch, k_owner) WITH ORDINALITY AS k (was, epoch, owner, kind)
                ON k.kind = p.kind WHERE k.was = 2)
            ORDER BY id FOR UPDATE) AS j;
    END IF;
END
$function$
