-- exchange_nodes_v1: as exchange_v1, for changes that do something to flows, or whose jobs await a signal. What they
-- release can be claimed in the same call.
--
-- Arguments  those of exchange_v1, then
--   f_*, g_*, released_at_once   see settle_flows.sql (most): as if all changes were valid
--   a_*      one element for each change whose job then awaits a signal: its place in the c_* arrays (1 is the first),
--            the name and key of the signal, and the number of the last one that it knows
-- Answer     if not all changes are valid: nothing is done, and there is one row, with the places of the valid ones in
--            made, and released NULL. Else as exchange_v1; the last row also has what was done to flows, as
--            settle_flows_v1: released (with the jobs that found their signal), tend, awake
-- Cost       that of exchange_v1 and settle_flows_v1; three statements for each job that awaits a signal
CREATE OR REPLACE FUNCTION {s}.exchange_nodes_v1(lazy boolean, c_id uuid[], c_kind int[], c_note bytea[],
    k_was smallint[], k_epoch int[], k_to smallint[], k_state_since bigint[], k_due bigint[], k_failures int[],
        k_crashes int[],
    k_keep_until bigint[], k_queue text[], k_claim_order bigint[], k_expires bigint[], k_key_held_until bigint[],
        k_body bytea[],
    k_owner text[], k_attempts bytea[], singly boolean, now_ bigint, w_queue text[], w_band smallint[],
    w_count int[], w_start bigint[], w_late_start bigint[], scheduled_from bigint,
    most int, promoted int, me text, lease bigint, counted bytea, f_id uuid[], f_active bigint[],
    f_failed bigint[], f_armed bigint[], f_blocked bigint[], f_revives int[], f_note bytea[], f_from int[], f_to int[], g_first bigint[],
    g_count bigint[], g_parents bigint[], g_raised bigint[], g_told bigint[], released_at_once bigint,
    a_place int[], a_name text[], a_key text[], a_after bigint[])
RETURNS TABLE ({claim_answer}, made int[], starts bigint[], late_starts bigint[], scheduled_start bigint,
    next_due bigint, limited boolean, in_lanes boolean, released bigint, tend boolean, awake bytea)
LANGUAGE plpgsql
    -- As exchange_v1: plans must not depend on when the tables were last analysed.
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $function$
#variable_conflict use_column
DECLARE
    made_ int[];
    a record;
    kind int;
    woken bytea := '';
    settled record;
    ending record;
    e_name text[] := '{}';
    e_count bigint[] := '{}';
BEGIN
    IF lazy THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF cardinality(c_id) > 0 THEN
        BEGIN
            limited := EXISTS (SELECT FROM {s}.limits l);
            IF limited THEN
                SELECT * INTO ending FROM {s}.ending_v1(c_id, c_kind, k_was, k_epoch, k_to, k_queue, k_owner, singly);
            END IF;
            made_ := {s}.apply_v1(c_id, c_kind, c_note, k_was, k_epoch, k_to, k_state_since, k_due, k_failures,
                k_crashes,
                k_keep_until, k_queue, k_claim_order, k_expires, k_key_held_until, k_body, k_owner, k_attempts, singly,
                    now_);
            IF cardinality(made_) < cardinality(c_id) THEN
                RAISE EXCEPTION 'not all changes are valid' USING ERRCODE = 'TY001';
            END IF;
        EXCEPTION WHEN SQLSTATE 'TY001' THEN
            -- What the others do to flows is for the caller to add up, who then calls once more.
            made := made_;
            RETURN NEXT;
            RETURN;
        END;
        IF limited THEN
            SELECT * INTO e_name, e_count FROM {s}.ended_levels_v1(c_id, c_kind, k_was, made_, ending.e_id, ending.e_queue,
                ending.e_task, ending.e_lane);
        END IF;
    END IF;
    IF length(counted) > 0 THEN
        INSERT INTO {s}.journal (record) VALUES (counted);
    END IF;
    IF cardinality(a_place) > 0 THEN
        -- In the order of addresses: two transactions wait for each other, but never in a circle.
        FOR a IN
            SELECT * FROM unnest(a_place, a_name, a_key, a_after) AS p (place, name, key, after)
            ORDER BY p.name COLLATE "C", p.key COLLATE "C", p.place
        LOOP
            kind := c_kind[a.place];
            -- Who sends a signal locks this row too, so that neither misses the other.
            INSERT INTO {s}.signal AS o (name, key, n, id, value, until, newest)
            VALUES (a.name, a.key, 0, '', '', k_state_since[kind] + {day}, 0)
            ON CONFLICT (name, key, n) DO UPDATE SET until = greatest(o.until, excluded.until);
            -- Not the last number tells: its signal may have been deleted since, and the job would find nothing.
            IF EXISTS (SELECT FROM {s}.signal o WHERE o.name = a.name AND o.key = a.key AND o.n > 0
                    AND o.n > a.after) THEN
                -- It came between the look of the task and this suspension.
                woken := woken || {s}.wake_waiting_v1(ARRAY[c_id[a.place]], ARRAY[k_epoch[kind]], k_state_since[kind]);
            ELSE
                INSERT INTO {s}.awaiting (job, name, key, epoch, seen)
                VALUES (c_id[a.place], a.name, a.key, k_epoch[kind], a.after)
                ON CONFLICT (job) DO UPDATE SET name = excluded.name, key = excluded.key, epoch = excluded.epoch,
                    seen = excluded.seen;
            END IF;
        END LOOP;
    END IF;
    settled := {s}.settle_flows_v1(f_id, f_active, f_failed, f_armed, f_blocked, f_revives, f_note, f_from, f_to, g_first, g_count,
        g_parents, g_raised, g_told, released_at_once, now_);
    RETURN QUERY SELECT {claim_values},
        CASE WHEN e.id IS NULL THEN made_ END, e.starts, e.late_starts, e.scheduled_start, e.next_due, e.limited,
        e.in_lanes, CASE WHEN e.id IS NULL THEN settled.released + length(woken) / 16 END,
        CASE WHEN e.id IS NULL THEN settled.tend END, CASE WHEN e.id IS NULL THEN settled.awake || woken END
    FROM {s}.exchange_v1(lazy, '{}', '{}', '{}', '{}', '{}', '{}', '{}', e_count, '{}', '{}', '{}', e_name, '{}', '{}', '{}',
        '{}', '{}', '{}', false, now_, w_queue, w_band, w_count, w_start, w_late_start, scheduled_from, most, promoted,
        me, lease, '') AS e;
END
$function$
