-- change_flow_v1: makes a change of a flow. The rule is `change_flow` in tarry/store/rules/flow_settle.py.
--
-- Arguments
--   flow, was, become   the flow, its phase as it was seen, and its new phase
--   ends .. blocked   the new values; NULL keeps what is there
--   seen     active, blocked and failed as they must still be; NULL: as they may be
--   most     how many nodes to release at most
--   now_     microseconds
-- Answer     whether the change was valid, then as finish_flow_v1
-- Cost       finish_flow_v1; to CANCELLING also two rows for each gate that is open
CREATE OR REPLACE FUNCTION {s}.change_flow_v1(flow uuid, was bigint, become bigint, ends bigint, note bytea, at bigint,
    active bigint, failed bigint, blocked bigint, seen bigint[], most bigint, now_ bigint, OUT valid boolean,
    OUT released bigint, OUT tend boolean, OUT ended boolean, OUT awake bytea)
LANGUAGE plpgsql
    -- Plans must not depend on when the tables were last analysed: each statement has its index.
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $function$
#variable_conflict use_variable
DECLARE
    f {s}.flow;
    g {s}.gate;
    was_moving boolean;
    left_ bigint;
    done record;
BEGIN
    SELECT * INTO f FROM {s}.flow o WHERE o.id = flow FOR UPDATE;
    valid := FOUND AND f.phase = was AND (seen IS NULL OR seen = ARRAY[f.active, f.blocked, f.failed]);
    IF NOT valid THEN
        RETURN;
    END IF;
    was_moving := f.phase = 3 OR (f.phase = 1 AND f.failed = 0);
    f.phase := become;
    f.ends := coalesce(ends, f.ends);
    f.note := coalesce(note, f.note);
    f.at := coalesce(at, f.at);
    f.active := coalesce(active, f.active);
    f.failed := coalesce(failed, f.failed);
    f.blocked := coalesce(blocked, f.blocked);
    IF become = 2 THEN
        -- What is left to release is held.
        FOR g IN SELECT * FROM {s}.gate o WHERE o.flow = f.id AND o.waits = 0 AND o.next >= 0 ORDER BY o.first LOOP
            left_ := g.first + g.count - g.next;
            DELETE FROM {s}.gate o WHERE o.flow = f.id AND o.first = g.first;
            INSERT INTO {s}.gate VALUES (f.id, g.next, left_, 0, -1);
            f.active := f.active - left_;
            f.blocked := f.blocked + left_;
        END LOOP;
    END IF;
    done := {s}.finish_flow_v1(f, '{}', was_moving, most, now_);
    released := done.released;
    tend := done.tend;
    ended := done.ended;
    awake := done.awake;
END
$function$
