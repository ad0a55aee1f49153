-- claim_in_lanes_v1: chooses the jobs of a claim under limits, and writes what it and the ends before it do to levels
-- and turns. As tarry/store/sql/lane_claim.py, for claims where no key has numbers of its own and no job a cost: only
-- that does the others. For exchange_v1 alone, which has the settings.
--
-- The attempts that end with a claim lower levels, and the claim raises mostly the same ones: each is written once. The
-- task's level row, which claims take in turn, is locked only then, after the changes of jobs.
--
-- Arguments
--   w_*      one element for each want: queue, band, how many jobs
--   most     how many in all
--   now_     microseconds
--   e_name, e_count   levels to lower, and by how much
-- Answer
--   done     NULL: nothing was written, and the caller lowers the levels and claims in another way
--   chosen   the jobs to start, which are locked
--   again    if there are none: when a rate allows a start; 0: come again at once
--   has_made_room   more may start under some limit than before
--   d_*      lanes that may be empty once these jobs have started
-- Cost       two looks at job_laned for each want, and one for each task there; one row of level for each limit, and
--            three of job_laned, level and lane for each lane that has a turn
CREATE OR REPLACE FUNCTION {s}.claim_in_lanes_v1(w_queue text[], w_band smallint[], w_count int[], most int,
    now_ bigint, e_name text[], e_count bigint[], OUT done boolean, OUT chosen tid[], OUT again bigint,
    OUT has_made_room boolean, OUT d_queue text[], OUT d_band int[], OUT d_task text[], OUT d_lane text[])
LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    wants int := cardinality(w_queue);
    t_want int[];  -- of each task of a want: the want, the task, the name of its turn
    t_task text[];
    t_turn text[];
    has_open boolean[];  -- of each want: whether jobs without a lane wait
    left_over boolean[];  -- of each want: whether it may have more jobs
    alone boolean;
    names text[];
    l_name text[];  -- the limits, and their numbers
    l_numbers bigint[];
    is_other boolean;
    v_name text[];  -- the levels of tasks and queues, and turns
    v_running bigint[];
    v_next bigint[];
    v_turn text[];
    at_ int;
    ended jsonb := coalesce(jsonb_object(e_name, e_count::text[]), '{}');
    started jsonb := '{}';
    place int;
    room int;
    task_room int;
    one record;
    n_found int;
    numbers bigint[];
    has_rate boolean;
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
    c_queue text[] := '{}';  -- of the chosen jobs
    c_task text[] := '{}';
    c_lane text[] := '{}';
    s_count bigint[];
BEGIN
    chosen := '{}';
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
        FROM unnest(w_queue, w_band) WITH ORDINALITY AS w (queue, band, n)) AS o;
    names := ARRAY(SELECT 'queue:' || q FROM unnest(w_queue) AS q UNION SELECT k || t
        FROM unnest(t_task) AS t, (VALUES ('task:'), ('each:')) AS kinds (k));
    SELECT coalesce(array_agg(l.name), '{}'),
        array_agg(coalesce({s}.limit_numbers_v1(l.value), ARRAY[NULL, NULL, NULL, NULL, NULL]::bigint[])),
        bool_or({s}.limit_numbers_v1(l.value) IS NULL), coalesce(bool_or(({s}.limit_numbers_v1(l.value))[2] > 0), false)
    INTO l_name, l_numbers, is_other, has_rate FROM {s}.limits l WHERE l.name = ANY (names);
    IF is_other THEN
        RETURN;
    END IF;
    -- All lock in the order of names, so that claims do not deadlock; also what ends lower, which would come later.
    names := ARRAY(SELECT u.name COLLATE "C" FROM (
        SELECT n.name FROM unnest(l_name) AS n (name) WHERE starts_with(n.name, 'queue:')
        UNION SELECT 'task:' || t FROM unnest(t_task) AS t UNION SELECT t FROM unnest(t_turn) AS t
        UNION SELECT n.name FROM unnest(e_name) AS n (name) WHERE NOT starts_with(n.name, 'each:')) AS u
        ORDER BY u.name COLLATE "C");
    LOOP
        SELECT array_agg(o.name), array_agg(o.running), array_agg(o.next), array_agg(o.turn)
        INTO v_name, v_running, v_next, v_turn FROM (
            SELECT * FROM {s}.level l WHERE l.name = ANY (names) ORDER BY l.name FOR UPDATE) AS o;
        EXIT WHEN coalesce(cardinality(v_name), 0) = cardinality(names);
        -- A row that is not there cannot be locked.
        INSERT INTO {s}.level SELECT name, 0, 0 FROM unnest(names) AS n (name) ORDER BY name ON CONFLICT DO NOTHING;
    END LOOP;
    -- A turn by weight is one for the other claims.
    IF EXISTS (SELECT FROM unnest(v_turn) AS t WHERE t ~ '{weighted}') THEN
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
        IF at_ IS NOT NULL THEN
            numbers := ARRAY(SELECT unnest(l_numbers[at_:at_]));
            at_ := array_position(v_name, 'queue:' || w_queue[place]);
            one := {s}.room_under_v1(numbers, v_name[at_], v_running[at_], v_next[at_], ended, started, now_);
            again := least(again, one.again);
            room := least(room, one.room);
        END IF;
        f_at := '{}'; f_rank := '{}'; f_due := '{}'; f_late := '{}'; f_bit := '{}'; f_task := '{}'; f_lane := '{}';
        f_first := '{}'; f_last := '{}';
        has_cost := false;
        IF room > 0 AND has_open[place] THEN
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
        END IF;
        FOR t IN 1 .. cardinality(t_want) LOOP
            CONTINUE WHEN t_want[t] <> place OR room <= 0;
            task_room := room;
            at_ := array_position(l_name, 'task:' || t_task[t]);
            IF at_ IS NOT NULL THEN
                numbers := ARRAY(SELECT unnest(l_numbers[at_:at_]));
                at_ := array_position(v_name, 'task:' || t_task[t]);
                one := {s}.room_under_v1(numbers, v_name[at_], v_running[at_], v_next[at_], ended, started, now_);
                again := least(again, one.again);
                task_room := least(task_room, one.room);
            END IF;
            CONTINUE WHEN task_room <= 0;
            at_ := array_position(l_name, 'each:' || t_task[t]);
            numbers := CASE WHEN at_ IS NOT NULL THEN ARRAY(SELECT unnest(l_numbers[at_:at_])) END;
            asked := task_room;
            n_found := 0;
            LOOP
                lanes := {s}.lanes_v1(w_queue[place], w_band[place], t_task[t], numbers IS NOT NULL,
                    ARRAY(SELECT substr(n.name, 1 + length('each:' || t_task[t] || chr(31)))
                        FROM unnest(e_name) AS n (name) WHERE starts_with(n.name, 'each:' || t_task[t] || chr(31))),
                    v_turn[array_position(v_name, t_turn[t])], asked);
                all_lanes := lanes;
                is_late := cardinality(lanes) >= asked;  -- there may be more
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
            lanes := ARRAY[f_task[1], f_lane[cardinality(picked)]];
        ELSE
            SELECT array_agg(f.at ORDER BY p.n), array_agg(f.task ORDER BY p.n), array_agg(f.lane ORDER BY p.n)
            INTO f_at, f_task, f_lane FROM unnest(picked) WITH ORDINALITY AS p (i, n)
            JOIN unnest(f_at, f_task, f_lane) WITH ORDINALITY AS f (at, task, lane, i) ON f.i = p.i;
            lanes := '{}';
            FOR one IN SELECT DISTINCT ON (f.task) f.task, f.lane
                FROM unnest(f_task, f_lane) WITH ORDINALITY AS f (task, lane, n) WHERE f.lane IS NOT NULL
                ORDER BY f.task, f.n DESC
            LOOP
                lanes := lanes || ARRAY[one.task, one.lane];
            END LOOP;
        END IF;
        chosen := chosen || f_at; c_task := c_task || f_task; c_lane := c_lane || f_lane;
        c_queue := c_queue || array_fill(w_queue[place], ARRAY[cardinality(picked)]);
        -- Each task, and its lane that was served last.
        FOR t IN 1 .. cardinality(lanes) / 2 LOOP
            CONTINUE WHEN lanes[2 * t] IS NULL;
            -- It would be read as a turn by weight.
            IF lanes[2 * t] ~ '{weighted}' THEN
                RETURN;
            END IF;
            at_ := array_position(v_name,
                'turn:' || lanes[2 * t - 1] || chr(31) || w_band[place] || chr(31) || w_queue[place]);
            v_turn[at_] := lanes[2 * t];
        END LOOP;
        IF NOT alone THEN
            started := (SELECT coalesce(jsonb_object_agg(n.name, n.starts), '{}')
                FROM {s}.count_levels_v1(c_queue, c_task, c_lane) AS n);
        END IF;
    END LOOP;
    IF got > 0 THEN
        again := NULL;
        UPDATE {s}.level l SET turn = t.turn FROM unnest(v_name, v_turn) AS t (name, turn)
        WHERE l.name = t.name AND l.turn IS DISTINCT FROM t.turn;
    END IF;
    SELECT array_agg(n.name), array_agg(n.starts), array_agg(n.ends), coalesce(bool_or(n.starts < n.ends), false)
    INTO names, s_count, e_count, has_made_room FROM (
        SELECT b.name, sum(b.starts)::bigint AS starts, sum(b.ends)::bigint AS ends FROM (
            SELECT n.name, n.starts, 0 AS ends FROM {s}.count_levels_v1(c_queue, c_task, c_lane) AS n
            UNION ALL SELECT e.name, 0, e.ends FROM unnest(e_name, e_count) AS e (name, ends)) AS b
        GROUP BY b.name) AS n;
    IF names IS NOT NULL THEN
        PERFORM {s}.change_levels_v1(names, s_count, e_count, has_rate, now_);
    END IF;
    done := true;
END
$function$
