-- insert_flow_v1: stores a flow with its nodes, whole, and counts those that are new.
--
-- Arguments
--   p_*, k_* the root and the nodes, the root first, as insert_v1 has them; only the root may have a key
--   keyed    whether the root has a key
--   counted  what the nodes count as (tarry/store/rules/history/journal.py); empty: as nothing
--   phase .. note   the row of the flow
--   g_*      one element for each gate: its first node, how many nodes, how many ends it waits for, and `next`
-- Answer     the id of the flow that lives: this one, also if it was stored before, or the one that holds its key; and
--            whether it is new
-- Cost       insert_v1 twice, one row of flow and one for each gate
CREATE OR REPLACE FUNCTION {s}.insert_flow_v1({new_arguments}, keyed boolean,
    counted bytea, phase bigint, at bigint, size bigint, active bigint, blocked bigint, failed bigint, armed bigint,
    ends bigint, undo bigint, keep_done bigint, keep_dead bigint, note bytea, g_first bigint[], g_count bigint[], g_waits bigint[],
    g_next bigint[], OUT lives bytea, OUT is_new boolean)
LANGUAGE plpgsql
    -- Plans must not depend on when the tables were last analysed: each statement has its index.
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $function$
#variable_conflict use_variable
BEGIN
    is_new := false;
    -- The root first: another transaction that stores the same flow, or one with its key, waits here for this one.
    SELECT o.lives INTO lives FROM {s}.insert_v1({new_first}, keyed, false, NULL, '', '') AS o;
    IF lives IS NOT NULL THEN
        RETURN;
    END IF;
    lives := uuid_send(p_id[1]);
    INSERT INTO {s}.flow VALUES (p_id[1], phase, at, size, active, blocked, failed, armed, ends, undo, keep_done,
        keep_dead, note)
    ON CONFLICT DO NOTHING;
    is_new := FOUND;
    IF is_new THEN
        INSERT INTO {s}.gate
        SELECT p_id[1], g.first, g.count, g.waits, g.next
        FROM unnest(g_first, g_count, g_waits, g_next) AS g (first, count, waits, next);
        PERFORM {s}.insert_v1({new_others}, false, false, NULL, '', counted);
    END IF;
END
$function$
