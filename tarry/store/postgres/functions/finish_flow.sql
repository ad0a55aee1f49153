-- finish_flow_v1: ends the settling of a flow, as `FlowSettling.finish` in tarry/store/rules/flow_settle.py: releases what
-- may be, ends the flow if none of its nodes is active, and writes its row.
--
-- Arguments
--   f        the row of the flow, which the caller has locked, as it is to be
--   opened   gates to release, `next` says from where on; waits is NULL where there is no row of the gate
--   was_moving   whether gates of the flow opened before this call
--   most     how many nodes to release at most
--   now_     microseconds
-- Answer     how many nodes were released; whether there are more to release; whether the flow has ended; the ids of
--            the jobs that are ready or scheduled by this, 16 bytes each
-- Cost       one row of flow; for each gate that has a row one statement; release_v1 once, for all gates
CREATE OR REPLACE FUNCTION {s}.finish_flow_v1(f {s}.flow, opened {s}.gate[], was_moving boolean, most bigint,
    now_ bigint, OUT released bigint, OUT tend boolean, OUT ended boolean, OUT awake bytea)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    g {s}.gate;
    firsts bigint[] := '{}';
    counts bigint[] := '{}';
    n bigint;
    undoing bytea;
BEGIN
    released := 0;
    tend := false;
    ended := false;
    awake := '';
    IF (f.phase = 3 OR (f.phase = 1 AND f.failed = 0)) AND NOT was_moving THEN
        FOR g IN SELECT * FROM {s}.gate WHERE flow = f.id AND waits = 0 AND next < 0 ORDER BY first LOOP
            g.next := g.first;
            opened := opened || g;
            f.blocked := f.blocked - g.count;
            f.active := f.active + g.count;
        END LOOP;
    END IF;
    IF f.phase = 1 THEN
        f.ends := CASE WHEN f.failed = 0 THEN 3 ELSE 4 END;
        f.note := CASE WHEN f.failed = 0 THEN '' ELSE f.note END;
        f.armed := CASE WHEN f.failed = 0 THEN 0 ELSE f.armed END;
    END IF;
    FOREACH g IN ARRAY opened LOOP
        n := least(g.first + g.count - g.next, most - released);
        IF n > 0 THEN
            firsts := firsts || g.next;
            counts := counts || n;
            released := released + n;
        END IF;
        IF g.next + n < g.first + g.count THEN
            tend := true;
            INSERT INTO {s}.gate VALUES (g.flow, g.first, g.count, 0, g.next + n)
            ON CONFLICT (flow, first) DO UPDATE
            SET count = excluded.count, waits = excluded.waits, next = excluded.next;
        ELSIF g.waits IS NOT NULL THEN
            DELETE FROM {s}.gate WHERE flow = g.flow AND first = g.first;
        END IF;
    END LOOP;
    IF released > 0 THEN
        awake := {s}.release_v1(f.id, firsts, counts, now_);
        n := released - length(awake) / 16;
        IF n > 0 THEN
            -- These are gone: they count as failed.
            f.active := f.active - n;
            f.failed := f.failed + n;
            f.ends := CASE WHEN f.phase = 1 THEN 4 ELSE f.ends END;
            IF f.note = '' THEN
                f.note := convert_to('{"type":"Lost","message":"' || n
                    || ' of its jobs are gone: they were deleted by hand","node":0}', 'UTF8');
            END IF;
        END IF;
    END IF;
    IF f.active <= 0 AND f.phase = 1 AND f.armed > 0 AND f.undo > 0 THEN
        -- The node that undoes the others. If it is gone, the flow ends below.
        f.phase := 3;
        undoing := {s}.release_v1(f.id, ARRAY[f.undo], ARRAY[1::bigint], now_);
        f.active := length(undoing) / 16;
        f.undo := CASE WHEN f.active > 0 THEN -f.undo ELSE f.undo END;
        released := released + f.active;
        awake := awake || undoing;
    END IF;
    IF f.active <= 0 AND f.phase NOT IN (0, 4) THEN
        ended := true;
        f.note := CASE WHEN f.ends = 3 THEN '' ELSE f.note END;
        IF f.ends = 3 AND f.blocked > 0 THEN
            f.ends := 4;
            f.note := convert_to('{"type":"Stuck","message":"' || f.blocked
                || ' of its jobs wait for others that are gone","node":0}', 'UTF8');
        END IF;
        f.phase := 4;
        f.at := now_ + CASE WHEN f.ends = 4 THEN f.keep_dead ELSE f.keep_done END;
        UPDATE {s}.job SET state = f.ends, note = f.note, state_since = now_, keep_until = {held}, key_held_until = 0
        WHERE id = f.id AND state = -1;
    END IF;
    UPDATE {s}.flow SET phase = f.phase, at = f.at, size = f.size, active = f.active, blocked = f.blocked,
        failed = f.failed, armed = f.armed, ends = f.ends, undo = f.undo, note = f.note
    WHERE id = f.id;
END
$function$
