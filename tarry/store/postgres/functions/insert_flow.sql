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
CREATE OR REPLACE FUNCTION {s}.insert_flow_v1(p_id uuid[], p_kind int[], p_due bigint[], p_state_since bigint[],
    p_body bytea[], k_task text[], k_queue text[], k_claim_order bigint[], k_state smallint[], k_epoch int[],
        k_failures int[],
    k_crashes int[], k_keep_until bigint[], k_expires bigint[], k_key text[], k_note bytea[], k_key_ttl bigint[],
    k_key_held_until bigint[], k_lane text[], k_headers bytea[], k_progress bytea[], k_attempts bytea[], keyed boolean,
    counted bytea, phase bigint, at bigint, size bigint, active bigint, blocked bigint, failed bigint, ends bigint,
    undo bigint, keep_done bigint, keep_dead bigint, note bytea, g_first bigint[], g_count bigint[], g_waits bigint[],
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
    SELECT o.lives INTO lives FROM {s}.insert_v1(p_id[1:1], p_kind[1:1], p_due[1:1], p_state_since[1:1], p_body[1:1],
        k_task,
        k_queue, k_claim_order, k_state, k_epoch, k_failures, k_crashes, k_keep_until, k_expires, k_key, k_note,
            k_key_ttl, k_key_held_until,
        k_lane, k_headers, k_progress, k_attempts, keyed, false, NULL, '', '') AS o;
    IF lives IS NOT NULL THEN
        RETURN;
    END IF;
    lives := uuid_send(p_id[1]);
    INSERT INTO {s}.flow VALUES (p_id[1], phase, at, size, active, blocked, failed, ends, undo, keep_done, keep_dead,
        note)
    ON CONFLICT DO NOTHING;
    is_new := FOUND;
    IF is_new THEN
        INSERT INTO {s}.gate
        SELECT p_id[1], g.first, g.count, g.waits, g.next
        FROM unnest(g_first, g_count, g_waits, g_next) AS g (first, count, waits, next);
        PERFORM {s}.insert_v1(p_id[2:], p_kind[2:], p_due[2:], p_state_since[2:], p_body[2:], k_task, k_queue,
            k_claim_order,
            k_state, k_epoch, k_failures, k_crashes, k_keep_until, k_expires, k_key, k_note, k_key_ttl,
                k_key_held_until, k_lane, k_headers,
            k_progress, k_attempts, false, false, NULL, '', counted);
    END IF;
END
$function$
