-- release_gate_v1: releases nodes of one gate that is open, as `release_gate` in tarry/store/flows/settle.py.
--
-- Arguments
--   most     how many nodes to release at most
--   now_     microseconds
-- Answer     whether there was such a gate, then as finish_flow_v1
-- Cost       one look at gate_open and at flow if there is none; else finish_flow_v1
CREATE OR REPLACE FUNCTION {s}.release_gate_v1(most bigint, now_ bigint, OUT found_one boolean, OUT released bigint,
    OUT tend boolean, OUT ended boolean, OUT awake bytea)
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
    done record;
BEGIN
    released := 0;
    ended := false;
    awake := '';
    -- By the flow of each gate: there may be very many flows, but few gates are open.
    SELECT * INTO g FROM {s}.gate o WHERE o.next >= 0
        AND EXISTS (SELECT FROM {s}.flow p WHERE p.id = o.flow AND p.phase IN (1, 3))
    ORDER BY o.flow, o.first LIMIT 1;
    found_one := FOUND;
    IF NOT found_one THEN
        RETURN;
    END IF;
    SELECT * INTO f FROM {s}.flow WHERE id = g.flow FOR UPDATE;
    -- Another process may have been here first.
    SELECT * INTO g FROM {s}.gate o WHERE o.flow = f.id AND o.first = g.first AND o.next >= 0;
    IF FOUND AND f.phase IN (1, 3) THEN
        done := {s}.finish_flow_v1(f, ARRAY[g], f.phase = 3 OR f.failed = 0, most, now_);
        released := done.released;
        tend := done.tend;
        ended := done.ended;
        awake := done.awake;
    END IF;
END
$function$
