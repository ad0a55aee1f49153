-- release_flow_v1: releases nodes of the next flow that has open gates, as `release_flow` in
-- tarry/store/rules/flow_settle.py.
--
-- Arguments
--   after_   the flow that was served last
--   most     how many nodes to release at most
--   now_     microseconds
-- Answer     the flow, 16 bytes, or NULL: none behind that one has open gates; then as finish_flow_v1
-- Cost       one look at gate_open and at flow if there is none; else as many gates as nodes, and finish_flow_v1
CREATE OR REPLACE FUNCTION {s}.release_flow_v1(after_ uuid, most bigint, now_ bigint, OUT served bytea,
    OUT released bigint, OUT tend boolean, OUT ended boolean, OUT awake bytea)
LANGUAGE plpgsql
    -- Plans must not depend on when the tables were last analysed: each statement has its index.
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $function$
#variable_conflict use_column
DECLARE
    f {s}.flow;
    g {s}.gate;
    opened {s}.gate[] := '{}';
    n bigint := 0;
    done record;
BEGIN
    released := 0;
    tend := false;
    ended := false;
    awake := '';
    -- By the flow of each gate: there may be very many flows, but few gates are open.
    SELECT * INTO g FROM {s}.gate o WHERE o.next >= 0 AND o.flow > after_
        AND EXISTS (SELECT FROM {s}.flow p WHERE p.id = o.flow AND p.phase IN (1, 3))
    ORDER BY o.flow, o.first LIMIT 1;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    served := uuid_send(g.flow);
    SELECT * INTO f FROM {s}.flow WHERE id = g.flow FOR UPDATE;
    IF NOT FOUND OR f.phase NOT IN (1, 3) THEN
        RETURN;
    END IF;
    -- Another process may have been here first.
    FOR g IN SELECT * FROM {s}.gate o WHERE o.flow = f.id AND o.next >= 0 ORDER BY o.first LIMIT most LOOP
        opened := opened || g;
        n := n + g.first + g.count - g.next;
        EXIT WHEN n >= most;
    END LOOP;
    IF n > 0 THEN
        done := {s}.finish_flow_v1(f, opened, f.phase = 3 OR f.failed = 0, most, now_);
        released := done.released;
        tend := done.tend;
        ended := done.ended;
        awake := done.awake;
    END IF;
END
$function$
