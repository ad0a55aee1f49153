-- settle_flows_v1: what the changes of nodes, which were all made, do to their flows. The rule is `settle` in
-- tarry/store/rules/flow_settle.py.
--
-- Arguments
--   f_*      one element for each flow, in the order of ids: its id, what to add to its numbers, whether the flow
--            goes on (1), the note of the first failure, and which rows of the g_*
--            arrays are its gates, from one to another (to < from: none)
--   g_*      one element for each gate of a flow: its first node, how many nodes, how many parents it has, for how many
--            ends more it waits, and how many ends it is told. parents is 0 for a gate that only opens
--   most     how many nodes to release at most
--   now_     microseconds
-- Answer     as finish_flow_v1, of all flows
-- Cost       for each flow: its row is locked and written, one or two statements for each gate with several parents,
--            finish_flow_v1
CREATE OR REPLACE FUNCTION {s}.settle_flows_v1(f_id uuid[], f_active bigint[], f_failed bigint[], f_armed bigint[],
    f_blocked bigint[], f_revives int[], f_note bytea[], f_from int[], f_to int[], g_first bigint[], g_count bigint[], g_parents bigint[],
    g_raised bigint[], g_told bigint[], most bigint, now_ bigint,
    OUT released bigint, OUT tend boolean, OUT ended boolean, OUT awake bytea)
LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    f {s}.flow;
    g {s}.gate;
    opened {s}.gate[];
    was_moving boolean;
    moving boolean;
    there boolean;
    done record;
BEGIN
    released := 0;
    tend := false;
    ended := false;
    awake := '';
    FOR n IN 1 .. cardinality(f_id) LOOP
        SELECT * INTO f FROM {s}.flow WHERE id = f_id[n] FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        was_moving := f.phase = 3 OR (f.phase = 1 AND f.failed = 0);
        f.active := f.active + f_active[n];
        f.blocked := f.blocked + f_blocked[n];
        f.failed := greatest(0, f.failed + f_failed[n]);
        f.armed := greatest(0, f.armed + f_armed[n]);
        -- The first failure is the one to show: those behind it may be its consequence.
        f.note := CASE WHEN f.note = '' THEN f_note[n] ELSE f.note END;
        IF f_revives[n] = 1 THEN
            f.phase := 1;
            f.at := {held};
        END IF;
        moving := f.phase = 3 OR (f.phase = 1 AND f.failed = 0);
        opened := '{}';
        FOR i IN f_from[n] .. f_to[n] LOOP
            there := false;
            IF g_parents[i] > 1 OR g_raised[i] <> 0 THEN
                SELECT * INTO g FROM {s}.gate WHERE flow = f.id AND first = g_first[i];
                there := FOUND;
                -- Without a row it is gone: the audit finds the nodes behind it.
                CONTINUE WHEN g.waits = 0 OR (NOT there AND g_raised[i] = 0);
            END IF;
            g := ROW(f.id, g_first[i], g_count[i], greatest(0,
                CASE WHEN there THEN g.waits ELSE g_parents[i] END + g_raised[i] - g_told[i]), -1);
            IF g.waits = 0 AND moving THEN
                g.waits := CASE WHEN there THEN 0 END;
                g.next := g.first;
                opened := opened || g;
                f.blocked := f.blocked - g.count;
                f.active := f.active + g.count;
            ELSIF g.waits = 0 OR there OR g_raised[i] <> 0 THEN
                -- One that waits for nothing is held: it opens if what failed is tried again.
                INSERT INTO {s}.gate VALUES (g.flow, g.first, g.count, g.waits, g.next)
                ON CONFLICT (flow, first) DO UPDATE
                SET count = excluded.count, waits = excluded.waits, next = excluded.next;
            END IF;
        END LOOP;
        done := {s}.finish_flow_v1(f, opened, was_moving, most - released, now_);
        released := released + done.released;
        tend := tend OR done.tend;
        ended := ended OR done.ended;
        awake := awake || done.awake;
    END LOOP;
END
$function$
