-- choose_in_lanes_v1: chooses and locks the jobs of a claim under limits, by the levels as they are now. As
-- tarry/store/sql/lane_claim.py, for claims where no key has numbers of its own and no job a cost: only that does the
-- others. For claim_in_lanes_v1 alone.
--
-- Arguments
--   w_*, most, now_, e_name, e_count   those of claim_in_lanes_v1
--   is_locked   the levels are locked (lock_claims.sql)
-- Answer
--   done     NULL: the caller has to claim in another way. False: lock the levels, and call it again
--   chosen, c_*   the jobs to start, which are locked, with queue, task and lane
--   again, d_*    those of claim_in_lanes_v1
--   l_name, l_numbers, l_least   the limits that count, their numbers as texts, and the least that may run, or start,
--            at once
--   has_rate      one of them has a rate
--   t_turn, t_last   turns, and the lane that was served last
-- Cost       two looks at job_laned for each want, and one for each task there; one of level for each limit, and three of
--            job_laned, level and lane for each lane that has a turn
CREATE OR REPLACE FUNCTION {s}.choose_in_lanes_v1(w_queue text[], w_band smallint[], w_count int[], most int,
    now_ bigint, e_name text[], e_count bigint[], is_locked boolean, OUT done boolean, OUT chosen tid[],
    OUT c_queue text[], OUT c_task text[], OUT c_lane text[], OUT again bigint, OUT d_queue text[], OUT d_band int[],
    OUT d_task text[], OUT d_lane text[], OUT l_name text[], OUT l_numbers text[], OUT l_least bigint,
    OUT has_rate boolean, OUT t_turn text[], OUT t_last text[])
LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    wants int := cardinality(w_queue);
    t_want int[];  -- of each task of a want: the want, and the task
    t_task text[];
    is_beside boolean[];  -- of each task of a want: another claim goes through its lanes just now
    has_open boolean[];  -- of each want: whether jobs without a lane wait
    is_crowded boolean;  -- another claim looks at these jobs without a lane just now
    is_short boolean := false;  -- another claim has locked jobs here, and may leave some of them
    is_short_of_keys boolean := false;  -- as before, where each key has a limit
    left_over boolean[];  -- of each want: whether it may have more jobs
    alone boolean;
    names text[];
    l_running bigint[];  -- of each limit: the level of the task or queue
    l_next bigint[];
    is_other boolean;
    at_ int;
    ended jsonb := coalesce(jsonb_object(e_name, e_count::text[]), '{}');
    started jsonb := '{}';
    place int;
    room int;
    task_room int;
    one record;
    n_found int;
    numbers bigint[];
    has_cost boolean;
    lanes text[];
    all_lanes text[];
    rooms bigint[];
    asked int;
    share int;
    got int := 0;
    f_at tid[];  -- of the candidates of a want, front after front
    f_rank bigint[];
    f_due bigint[];
    f_late boolean[];
    f_bit int[];
    f_task text[];
    f_lane text[];
    f_first int[];  -- of each front: its first candidate that is left, and its last one
    f_last int[];
    picked int[];
    best int[];
    rank bigint;
    is_late boolean;
BEGIN
    chosen := '{}'; c_queue := '{}'; c_task := '{}'; c_lane := '{}';
    d_queue := '{}'; d_band := '{}'; d_task := '{}'; d_lane := '{}';
    SELECT coalesce(array_agg(w.n::int ORDER BY w.n, f.task), '{}'), coalesce(array_agg(f.task ORDER BY w.n, f.task), '{}'),
        coalesce(array_agg('turn:' || f.task || chr(31) || w.band || chr(31) || w.queue ORDER BY w.n, f.task), '{}')
    INTO t_want, t_task, t_turn
    FROM unnest(w_queue, w_band) WITH ORDINALITY AS w (queue, band, n) CROSS JOIN LATERAL (
        WITH RECURSIVE found (task) AS (
            SELECT (SELECT r.task FROM {s}.job r WHERE r.state = 1 AND r.lane IS NOT NULL AND r.queue = w.queue
                AND {band} = -w.band::int ORDER BY r.task LIMIT 1)
            UNION ALL SELECT (SELECT r.task FROM {s}.job r WHERE r.state = 1 AND r.lane IS NOT NULL
                AND r.queue = w.queue AND {band} = -w.band::int AND r.task > found.task ORDER BY r.task LIMIT 1)
            FROM found WHERE found.task IS NOT NULL)
        SELECT found.task FROM found WHERE found.task IS NOT NULL) AS f
    WHERE (SELECT true FROM {s}.paused p WHERE p.queue = w.queue) IS NULL;
    SELECT array_agg(o.has_open ORDER BY o.n), array_agg(o.has_open OR o.n::int = ANY (t_want) ORDER BY o.n)
    INTO has_open, left_over FROM (
        SELECT w.n, (SELECT true FROM {s}.paused p WHERE p.queue = w.queue) IS NULL AND coalesce(
                (SELECT true FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue
                    AND NOT r.out_of_order AND {line} = 0 - 2 * w.band LIMIT 1),
                (SELECT true FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue
                    AND NOT r.out_of_order AND {line} = 1 - 2 * w.band LIMIT 1),
                (SELECT true FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue
                    AND r.out_of_order AND {line} = 0 - 2 * w.band LIMIT 1),
                (SELECT true FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue
                    AND r.out_of_order AND {line} = 1 - 2 * w.band LIMIT 1), false) AS has_open
        FROM unnest(w_queue, w_band) WITH ORDINALITY AS w (queue, band, n) OFFSET 0) AS o;
    names := ARRAY(SELECT 'queue:' || q FROM unnest(w_queue) AS q UNION SELECT k || t
        FROM unnest(t_task) AS t, (VALUES ('task:'), ('each:')) AS kinds (k));
    SELECT coalesce(array_agg(l.name), '{}'), array_agg(l.numbers::text), array_agg(l.running), array_agg(l.next),
        bool_or(l.numbers IS NULL), coalesce(bool_or(l.numbers[2] > 0), false),
        min(least(l.numbers[1], CASE WHEN l.numbers[2] > 0 THEN l.numbers[3] END))
    INTO l_name, l_numbers, l_running, l_next, is_other, has_rate, l_least FROM (
        SELECT l.name, {s}.limit_numbers_v1(l.value) AS numbers, v.running, v.next
        FROM {s}.limits l LEFT JOIN {s}.level v ON v.name = l.name WHERE l.name = ANY (names) OFFSET 0) AS l;
    t_last := ARRAY(SELECT (SELECT l.turn FROM {s}.level l WHERE l.name = t.name)
        FROM unnest(t_turn) WITH ORDINALITY AS t (name, n) ORDER BY t.n);
    -- A turn by weight is one for the other claims.
    IF is_other OR EXISTS (SELECT FROM unnest(t_last) AS t WHERE t ~ '{weighted}') THEN
        RETURN;
    END IF;
    -- One at a time also means in order: nobody may take the second job while another claim has the first. And where
    -- fewer end than are wanted, places in lanes are likely to be few, so that another claim would choose the same ones.
    IF NOT is_locked AND (l_least <= 1
            OR EXISTS (SELECT FROM unnest(l_name) AS n (name) WHERE starts_with(n.name, 'each:'))
            AND (SELECT coalesce(sum(e.ends), 0) FROM unnest(e_name, e_count) AS e (name, ends)
                WHERE starts_with(e.name, 'each:')) < most / 2) THEN
        done := false;
        RETURN;
    END IF;
    -- A want that is alone need not be asked twice.
    alone := (SELECT count(*) FROM unnest(left_over) AS o (is_left) WHERE o.is_left) = 1;
    FOR turn IN 0 .. 2 * wants - 1 LOOP
        place := turn % wants + 1;
        room := most - got;
        EXIT WHEN room <= 0;
        IF turn < wants AND NOT alone THEN
            room := least(room, w_count[place]);
        END IF;
        CONTINUE WHEN room <= 0 OR NOT left_over[place];
        at_ := array_position(l_name, 'queue:' || w_queue[place]);
        one := {s}.room_under_v1(l_numbers[at_]::bigint[], l_name[at_], l_running[at_], l_next[at_], ended, started,
            now_);
        again := least(again, one.again);
        room := least(room, one.room);
        f_at := '{}'; f_rank := '{}'; f_due := '{}'; f_late := '{}'; f_bit := '{}'; f_task := '{}'; f_lane := '{}';
        f_first := '{}'; f_last := '{}';
        has_cost := false;
        IF room > 0 AND has_open[place] THEN
            is_crowded := NOT pg_try_advisory_xact_lock(hashtext('tarry'),
                hashtext('{s}open:' || w_band[place] || chr(31) || w_queue[place]));
            FOREACH is_late IN ARRAY ARRAY[true, false] LOOP
                WITH in_order AS (
                    SELECT r.ctid AS at, r.claim_order, r.due, r.id, r.task, r.headers FROM {s}.job r
                    WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[place] AND NOT r.out_of_order
                        AND {line} = is_late::int - 2 * w_band[place] AND r.claim_order = -w_band[place]
                        AND r.ctid <> ALL (chosen)
                    ORDER BY r.due, r.id LIMIT room FOR UPDATE SKIP LOCKED),
                unordered AS (
                    SELECT r.ctid AS at, r.claim_order, r.due, r.id, r.task, r.headers FROM {s}.job r
                    WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[place] AND r.out_of_order
                        AND {line} = is_late::int - 2 * w_band[place] AND r.ctid <> ALL (chosen)
                    ORDER BY r.claim_order, r.due, r.id LIMIT room FOR UPDATE SKIP LOCKED),
                line AS (SELECT * FROM (SELECT * FROM in_order UNION ALL SELECT * FROM unordered) AS b
                    ORDER BY b.claim_order, b.due, b.id LIMIT room)
                SELECT array_agg(b.at) AS at, array_agg(b.claim_order) AS rank, array_agg(b.due) AS due,
                    array_agg(get_byte(uuid_send(b.id), 15) & 1) AS bit, array_agg(b.task) AS task,
                    has_rate AND bool_or(position('{cost_mark}'::bytea IN b.headers) > 0) AS has_cost, count(*) AS n
                INTO one FROM line b;
                IF one.n > 0 THEN
                    has_cost := has_cost OR one.has_cost;
                    f_first := f_first || cardinality(f_at) + 1;
                    f_at := f_at || one.at; f_rank := f_rank || one.rank; f_due := f_due || one.due;
                    f_late := f_late || array_fill(is_late, ARRAY[one.n::int]); f_bit := f_bit || one.bit;
                    f_task := f_task || one.task; f_lane := f_lane || array_fill(NULL::text, ARRAY[one.n::int]);
                    f_last := f_last || cardinality(f_at);
                END IF;
            END LOOP;
            is_short := is_short OR is_crowded AND cardinality(f_at) < room;
        END IF;
        FOR t IN 1 .. cardinality(t_want) LOOP
            CONTINUE WHEN t_want[t] <> place OR room <= 0;
            at_ := array_position(l_name, 'task:' || t_task[t]);
            one := {s}.room_under_v1(l_numbers[at_]::bigint[], l_name[at_], l_running[at_], l_next[at_], ended, started,
                now_);
            again := least(again, one.again);
            task_room := least(room, one.room);
            CONTINUE WHEN task_room <= 0;
            at_ := array_position(l_name, 'each:' || t_task[t]);
            numbers := l_numbers[at_]::bigint[];
            asked := task_room;
            n_found := 0;
            -- What another one has chosen is locked: it would be in vain to look for jobs there.
            IF is_beside[t] IS NULL THEN
                is_beside[t] := NOT pg_try_advisory_xact_lock(hashtext('tarry'), hashtext('{s}' || t_turn[t]));
                IF is_beside[t] THEN
                    t_turn[t] := t_turn[t] || chr(31) || 'back';
                    t_last[t] := (SELECT l.turn FROM {s}.level l WHERE l.name = t_turn[t]);
                END IF;
            END IF;
            LOOP
                IF is_beside[t] THEN
                    lanes := {s}.lanes_backwards_v1(w_queue[place], w_band[place], t_task[t], numbers IS NOT NULL,
                        t_last[t], asked);
                ELSE
                    lanes := {s}.lanes_v1(w_queue[place], w_band[place], t_task[t], numbers IS NOT NULL,
                        ARRAY(SELECT substr(n.name, 1 + length('each:' || t_task[t] || chr(31)))
                            FROM unnest(e_name) AS n (name) WHERE starts_with(n.name, 'each:' || t_task[t] || chr(31))),
                        t_last[t], asked);
                END IF;
                is_late := cardinality(lanes) >= asked;  -- there may be more
                all_lanes := lanes;
                IF numbers IS NULL THEN
                    rooms := array_fill(task_room::bigint, ARRAY[cardinality(lanes)]);
                ELSE
                    SELECT coalesce(array_agg(u.lane ORDER BY u.n) FILTER (WHERE u.room > 0), '{}') AS lanes,
                        coalesce(array_agg(u.room ORDER BY u.n) FILTER (WHERE u.room > 0), '{}') AS rooms,
                        count(*) FILTER (WHERE u.room = 0) AS full_lanes, min(u.again) AS again
                    INTO one FROM (
                        SELECT n.lane, n.n, r.* FROM unnest(lanes) WITH ORDINALITY AS n (lane, n)
                        LEFT JOIN {s}.level l ON l.name = 'each:' || t_task[t] || chr(31) || n.lane
                        CROSS JOIN LATERAL {s}.room_under_v1(numbers, 'each:' || t_task[t] || chr(31) || n.lane,
                            coalesce(l.running, 0), coalesce(l.next, 0), ended, started, now_) AS r) AS u;
                    -- Those are to be closed, which needs locks of its own.
                    IF one.full_lanes > {few_full} THEN
                        RETURN;
                    END IF;
                    lanes := one.lanes; rooms := one.rooms;
                    again := least(again, one.again);
                END IF;
                n_found := 0;
                EXIT WHEN cardinality(lanes) = 0 AND (NOT is_late OR asked >= {examined});
                -- Equal shares, rounded up, so that few lanes still fill the room of the task. Lanes with few jobs leave
                -- a part of theirs to the others.
                share := (task_room + cardinality(lanes) - 1) / greatest(1, cardinality(lanes));
                LOOP
                    SELECT array_agg(c.at) AS at, array_agg(c.claim_order) AS rank, array_agg(c.due) AS due,
                        array_agg(c.late) AS late, array_agg(get_byte(uuid_send(c.id), 15) & 1) AS bit,
                        array_agg(c.lane) AS lane, bool_or(c.has_cost) AS has_cost, count(*) AS n
                    INTO one FROM (
                        SELECT j.*, row_number() OVER (PARTITION BY j.n ORDER BY j.claim_order, j.due, j.id) AS k
                        FROM (
                            SELECT w.n, w.lane, l.* FROM unnest(lanes, rooms) WITH ORDINALITY AS w (lane, room, n)
                            CROSS JOIN LATERAL (
                                SELECT r.ctid AS at, r.claim_order, r.due, r.state_since > r.due AS late, r.id, has_rate
                                    AND position('{cost_mark}'::bytea IN r.headers) > 0 AS has_cost
                                FROM {s}.job r WHERE r.state = 1 AND r.lane IS NOT NULL AND r.queue = w_queue[place]
                                    AND {band} = -w_band[place]::int AND r.task = t_task[t] AND r.lane = w.lane
                                    AND r.ctid <> ALL (chosen)
                                ORDER BY r.claim_order, r.due, r.id LIMIT least(w.room, share)
                                FOR UPDATE SKIP LOCKED) AS l) AS j
                        ORDER BY k, j.n LIMIT task_room) AS c;
                    n_found := one.n;
                    EXIT WHEN n_found >= task_room OR share >= task_room OR NOT share < ANY (rooms);
                    share := task_room;
                END LOOP;
                EXIT WHEN n_found >= task_room OR NOT is_late OR asked >= {examined};
                -- Many may be empty or full.
                asked := {examined};
            END LOOP;
            IF is_beside[t] AND coalesce(n_found, 0) < task_room THEN
                is_short := is_short OR numbers IS NULL;
                is_short_of_keys := true;
            END IF;
            IF is_late AND n_found < task_room THEN
                again := 0;  -- not all lanes were examined
            END IF;
            IF numbers IS NOT NULL AND (n_found < task_room OR task_room <= {few_full}) THEN
                -- Those that gave less than they were asked for have no more jobs. While there is more than enough to do
                -- the others are left until their next turn: to look into each costs a part of the claim.
                IF n_found = 0 OR task_room <= {few_full} THEN
                    lanes := all_lanes;
                ELSE
                    lanes := ARRAY(SELECT l.lane FROM unnest(lanes, rooms) AS l (lane, room)
                        LEFT JOIN (SELECT g.lane, count(*) AS n FROM unnest(one.lane) AS g (lane) GROUP BY g.lane) AS g
                        ON g.lane = l.lane WHERE coalesce(g.n, 0) < least(l.room, share));
                END IF;
                d_queue := d_queue || array_fill(w_queue[place], ARRAY[cardinality(lanes)]);
                d_band := d_band || array_fill(w_band[place]::int, ARRAY[cardinality(lanes)]);
                d_task := d_task || array_fill(t_task[t], ARRAY[cardinality(lanes)]);
                d_lane := d_lane || lanes;
            END IF;
            IF n_found > 0 THEN
                has_cost := has_cost OR one.has_cost;
                f_first := f_first || cardinality(f_at) + 1;
                f_at := f_at || one.at; f_rank := f_rank || one.rank; f_due := f_due || one.due;
                f_late := f_late || one.late; f_bit := f_bit || one.bit;
                f_task := f_task || array_fill(t_task[t], ARRAY[one.n::int]); f_lane := f_lane || one.lane;
                f_last := f_last || cardinality(f_at);
            END IF;
        END LOOP;
        IF has_cost THEN
            RETURN;
        END IF;
        IF cardinality(f_first) <= 1 THEN
            picked := ARRAY(SELECT generate_series(1, least(room, cardinality(f_at))));
        ELSE
            -- As `merge_lines` in tarry/store/rules/lanes.py.
            picked := '{}';
            rank := NULL;
            WHILE cardinality(picked) < room LOOP
                -- Of each kind, on time and late, the front whose first job is due first.
                best := ARRAY(SELECT (SELECT f.n FROM unnest(f_first, f_last) WITH ORDINALITY AS f (first, last, n)
                        WHERE f.first <= f.last AND f_late[f.first] = k.late AND f_rank[f.first] = m.rank
                        ORDER BY f_due[f.first], f.n LIMIT 1)
                    FROM (SELECT min(f_rank[f.first]) AS rank FROM unnest(f_first, f_last) AS f (first, last)
                        WHERE f.first <= f.last) AS m, (VALUES (false), (true)) AS k (late) ORDER BY k.late);
                EXIT WHEN best[1] IS NULL AND best[2] IS NULL;
                IF best[1] IS NULL OR best[2] IS NULL THEN
                    at_ := coalesce(best[1], best[2]);
                ELSE
                    is_late := CASE WHEN rank = f_rank[f_first[best[1]]] THEN NOT is_late
                        ELSE f_bit[f_first[best[1]]] <> f_bit[f_first[best[2]]] END;
                    rank := f_rank[f_first[best[1]]];
                    at_ := best[1 + is_late::int];
                END IF;
                picked := picked || f_first[at_];
                f_first[at_] := f_first[at_] + 1;
            END LOOP;
        END IF;
        left_over[place] := NOT alone AND room > 0 AND cardinality(picked) >= room;
        CONTINUE WHEN cardinality(picked) = 0;
        got := got + cardinality(picked);
        -- Not by subscripts in a statement: each looks through the whole array.
        IF cardinality(f_first) = 1 THEN
            f_at := f_at[:cardinality(picked)]; f_task := f_task[:cardinality(picked)];
            f_lane := f_lane[:cardinality(picked)];
        ELSE
            SELECT array_agg(f.at ORDER BY p.n), array_agg(f.task ORDER BY p.n), array_agg(f.lane ORDER BY p.n)
            INTO f_at, f_task, f_lane FROM unnest(picked) WITH ORDINALITY AS p (i, n)
            JOIN unnest(f_at, f_task, f_lane) WITH ORDINALITY AS f (at, task, lane, i) ON f.i = p.i;
        END IF;
        chosen := chosen || f_at; c_task := c_task || f_task; c_lane := c_lane || f_lane;
        c_queue := c_queue || array_fill(w_queue[place], ARRAY[cardinality(picked)]);
        FOR t IN 1 .. cardinality(t_want) LOOP
            CONTINUE WHEN t_want[t] <> place;
            t_last[t] := coalesce((SELECT f.lane FROM unnest(f_task, f_lane) WITH ORDINALITY AS f (task, lane, n)
                WHERE f.task = t_task[t] AND f.lane IS NOT NULL ORDER BY f.n DESC LIMIT 1), t_last[t]);
            -- It would be read as a turn by weight.
            IF t_last[t] ~ '{weighted}' THEN
                RETURN;
            END IF;
        END LOOP;
        IF NOT alone THEN
            started := (SELECT coalesce(jsonb_object_agg(n.name, n.starts), '{}')
                FROM {s}.count_levels_v1(c_queue, c_task, c_lane) AS n);
        END IF;
    END LOOP;
    -- To wait for the other claim would be a circle: it may wait for a level that this one has locked.
    again := CASE WHEN is_short OR got = 0 AND is_short_of_keys THEN 0 WHEN got = 0 THEN again END;
    done := true;
END
$function$
