-- exchange_v1: makes changes to jobs and counts them, then claims jobs for a worker, in one round trip. It also makes
-- due jobs ready.
--
-- Late jobs and those on time (`lifecycle.is_late`) wait in two lines, from which a claim takes in turn. Each line is a
-- part of job_ready (its third column: 1 if late, minus twice the band), so a claim finds the first of one at once,
-- however many wait in the other.
--
-- Within a line most jobs are in order: what becomes ready is due later than what was claimed lately. So a claim begins
-- where the last claim of its process saw the first job (the scan start), and does not read the index entries of
-- deleted rows before it, which pile up while somebody holds a snapshot open. The other jobs are out of order (column
-- out_of_order), and have a part of the index too: jobs stored over {stored_within} microseconds after they were due,
-- and jobs with a priority of their own. A scan start stays {seen_within} microseconds behind the clock, so a job in
-- order cannot come before it, unless storing it took longer than their difference: then the client sets aside afterwards.
--
-- Arguments
--   lazy     commit without waiting for the disk
--   c_*, k_*, singly, now_   see apply.sql; empty arrays: no changes. Then k_queue and k_due are levels to lower for
--            exchange_nodes_v1, which has made the changes, and by how much
--   w_*      one element for each want: queue, band (1, 0, -1), how many jobs, and the scan starts of its two lines
--   scheduled_from   the scan start of the scheduled jobs
--   most     how many jobs to claim in all: first each want its count, then whatever there is. 0: none
--   promoted how many due jobs to make ready at most
--   me, lease   the owner of the claimed jobs, and how long its lease lasts, in microseconds
--   counted  what the changes count as (tarry/store/rules/history/journal.py); empty: as nothing
-- Answer     one row for each claimed job; then one row whose id is NULL, with
--              made      see apply.sql
--              starts, late_starts, scheduled_start   the scan starts for the next call
--              next_due  when the next job is due or the next lane opens; NULL: never
--              limited   whether there is any limit
--              in_lanes  whether jobs wait in lanes for which the caller has to claim: nothing is claimed. NULL: jobs of
--                        lanes were claimed here, or none could be, and no limit has more room than before
-- Cost       one row of journal if something counts; two looks at job_scheduled, one at job_laned, three at job_ready
--            for each want (two more if jobs are out of order), then one statement for each want that has jobs. Where
--            there are limits, also one row of lane and of limits for each want, and what claim_in_lanes.sql says.
CREATE OR REPLACE FUNCTION {s}.exchange_v1(lazy boolean, c_id uuid[], c_kind int[], c_note bytea[], k_was smallint[],
    k_epoch int[], k_to smallint[], k_state_since bigint[], k_due bigint[], k_failures int[], k_crashes int[],
    k_keep_until bigint[], k_queue text[], k_claim_order bigint[], k_expires bigint[], k_key_held_until bigint[],
        k_body bytea[],
    k_owner text[], k_attempts bytea[], singly boolean, now_ bigint, w_queue text[], w_band smallint[],
    w_count int[], w_start bigint[], w_late_start bigint[], scheduled_from bigint,
    most int, promoted int, me text, lease bigint, counted bytea)
RETURNS TABLE ({claim_answer}, made int[], starts bigint[], late_starts bigint[], scheduled_start bigint,
    next_due bigint, limited boolean, in_lanes boolean) LANGUAGE plpgsql
    -- Plans must not depend on when the tables were last analysed: each statement has its index.
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $function$
#variable_conflict use_column
DECLARE
    latest_start bigint := {clock} - {seen_within};
    wants int := CASE WHEN most > 0 THEN cardinality(w_queue) ELSE 0 END;
    any_paused boolean;
    any_laned boolean;
    unordered_due bigint;
    unpaused boolean[];
    open boolean[];  -- of each want: whether there may be jobs to claim; the next four likewise
    on_time boolean[];
    late boolean[];
    unordered boolean[];
    got int := 0;
    room int;
    share int;
    taken int;
    more int;
    digits bytea;  -- of each change: 1 if it was made
    ending record;
    e_name text[] := k_queue;  -- levels that ends lower, and by how much
    e_count bigint[] := k_due;
    claim record;
BEGIN
    IF lazy THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF cardinality(c_id) > 0 THEN
        limited := EXISTS (SELECT FROM {s}.limits l);
        IF limited THEN
            SELECT * INTO ending FROM {s}.ending_v1(c_id, c_kind, k_was, k_epoch, k_to, k_queue, k_owner, singly);
        END IF;
        made := {s}.apply_v1(c_id, c_kind, c_note, k_was, k_epoch, k_to, k_state_since, k_due, k_failures, k_crashes,
            k_keep_until, k_queue, k_claim_order, k_expires, k_key_held_until, k_body, k_owner, k_attempts, singly,
                now_);
        IF cardinality(made) < cardinality(c_id) THEN
            digits := convert_to(repeat('0', cardinality(c_id)), 'UTF8');
            FOREACH more IN ARRAY made LOOP
                digits := set_byte(digits, more - 1, ascii('1'));
            END LOOP;
        END IF;
        IF length(counted) > 0 AND cardinality(made) > 0 THEN
            INSERT INTO {s}.journal (record) VALUES (coalesce(digits, '') || counted);
        END IF;
        e_name := '{}';
        e_count := '{}';
        IF limited THEN
            SELECT * INTO e_name, e_count FROM {s}.ended_levels_v1(c_id, c_kind, k_was, made, ending.e_id, ending.e_queue,
                ending.e_task, ending.e_lane);
        END IF;
    END IF;
    SELECT EXISTS (SELECT FROM {s}.limits l), EXISTS (SELECT FROM {s}.paused),
        EXISTS (SELECT FROM {s}.job r WHERE r.state = 1 AND r.lane IS NOT NULL),
        (SELECT j.due FROM {s}.job j WHERE j.state = 0 AND NOT j.out_of_order AND j.due >= scheduled_from
            ORDER BY j.due LIMIT 1),
        (SELECT j.due FROM {s}.job j WHERE j.state = 0 AND j.out_of_order ORDER BY j.due LIMIT 1)
    INTO limited, any_paused, any_laned, scheduled_start, unordered_due;
    next_due := least(scheduled_start, unordered_due);
    scheduled_start := least(scheduled_start, latest_start);
    starts := w_start;
    late_starts := w_late_start;
    in_lanes := false;
    IF any_paused AND wants > 0 THEN
        SELECT array_agg(NOT EXISTS (SELECT FROM {s}.paused p WHERE p.queue = w.queue) ORDER BY w.n) INTO unpaused
        FROM unnest(w_queue) WITH ORDINALITY AS w (queue, n);
        wants := CASE WHEN true = ANY (unpaused) THEN wants ELSE 0 END;
    END IF;
    IF wants > 0 AND next_due <= now_ THEN
        next_due := {s}.promote_v1(promoted, now_, scheduled_from);
        any_laned := true;  -- perhaps, by now
    END IF;
    IF wants > 0 AND limited THEN
        UPDATE {s}.lane SET again = NULL WHERE ctid = ANY (ARRAY(
            SELECT o.ctid FROM {s}.lane o WHERE o.again IS NOT NULL AND o.again <= now_
            ORDER BY o.again LIMIT 100 FOR UPDATE SKIP LOCKED));
        next_due := least(next_due, nullif(
            (SELECT o.again FROM {s}.lane o WHERE o.again IS NOT NULL ORDER BY o.again LIMIT 1), {until_an_end}));
    END IF;
    IF wants > 0 AND (limited OR any_laned) THEN
        -- Is there a want that has a limit, or an open lane, or jobs in lanes of a task without a limit for each key?
        -- Lanes that are full are closed, and do not count. No EXISTS for the first two: the planner may read all its
        -- rows and hash them.
        SELECT coalesce(bool_or(unpaused IS NULL OR unpaused[w.n]), false) INTO in_lanes
        FROM unnest(w_queue, w_band) WITH ORDINALITY AS w (queue, band, n)
        WHERE (SELECT true FROM {s}.limits l WHERE l.name = 'queue:' || w.queue)
            OR (SELECT true FROM {s}.lane o
                WHERE o.again IS NULL AND o.queue = w.queue AND o.band = w.band LIMIT 1)
            OR EXISTS (
                WITH RECURSIVE found (task) AS (
                    (SELECT r.task FROM {s}.job r WHERE r.state = 1 AND r.lane IS NOT NULL AND r.queue = w.queue
                        AND (r.claim_order > 0)::int - (r.claim_order < 0)::int = -w.band ORDER BY r.task LIMIT 1)
                    UNION ALL
                    SELECT (SELECT r.task FROM {s}.job r WHERE r.state = 1 AND r.lane IS NOT NULL AND r.queue = w.queue
                        AND (r.claim_order > 0)::int - (r.claim_order < 0)::int = -w.band AND r.task > found.task
                        ORDER BY r.task LIMIT 1)
                    FROM found WHERE found.task IS NOT NULL)
                SELECT FROM found WHERE found.task IS NOT NULL
                    AND NOT EXISTS (SELECT FROM {s}.limits e WHERE e.name = 'each:' || found.task));
        -- Also lanes that were full and are not any more.
        in_lanes := in_lanes OR EXISTS (SELECT FROM unnest(e_name) AS n (name) WHERE starts_with(n.name, 'each:'));
    END IF;
    IF in_lanes THEN
        wants := 0;
        claim := {s}.claim_in_lanes_v1(w_queue, w_band, w_count, most, now_, e_name, e_count);
        IF claim.done THEN
            e_name := '{}';
            in_lanes := CASE WHEN claim.has_made_room THEN false END;
            RETURN QUERY
            UPDATE {s}.job j SET state = 2, owner = me, epoch = least(j.epoch, 2147483646) + 1, state_since = now_,
                key_held_until = CASE WHEN j.key_ttl < 0 THEN 0 ELSE j.key_held_until END
            WHERE j.ctid = ANY (claim.chosen)
            RETURNING {claimed}, NULL::int[], NULL::bigint[], NULL::bigint[], NULL::bigint, NULL::bigint,
                NULL::boolean, NULL::boolean;
            GET DIAGNOSTICS got = ROW_COUNT;
            next_due := least(next_due, claim.again);
            IF cardinality(claim.d_lane) > 0 THEN
                PERFORM {s}.remove_lanes_v1(claim.d_queue, claim.d_band, claim.d_task, claim.d_lane);
            END IF;
        END IF;
    END IF;
    IF cardinality(e_name) > 0 THEN
        PERFORM {s}.change_levels_v1(e_name, array_fill(0::bigint, ARRAY[cardinality(e_name)]), e_count, false, now_);
    END IF;
    IF wants > 0 THEN
        SELECT array_agg(least(p.first, latest_start)), array_agg(least(p.late_first, latest_start)),
            array_agg(p.first IS NOT NULL), array_agg(p.late_first IS NOT NULL),
            array_agg((p.first IS NOT NULL OR p.late_first IS NOT NULL) AND (unpaused IS NULL OR unpaused[p.n])),
            array_agg(p.unordered IS NOT NULL)
        INTO starts, late_starts, on_time, late, open, unordered
        -- No EXISTS here and below: the planner may read all its rows and hash them.
        FROM (
            SELECT w.n,
                (SELECT r.due FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue
                    AND NOT r.out_of_order AND {line} = -2 * w.band AND r.claim_order = -w.band AND r.due >= w.start
                    ORDER BY r.due, r.id LIMIT 1) AS first,
                (SELECT r.due FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue
                    AND NOT r.out_of_order AND {line} = 1 - 2 * w.band AND r.claim_order = -w.band
                        AND r.due >= w.late_start
                    ORDER BY r.due, r.id LIMIT 1) AS late_first,
                (SELECT true FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue
                    AND r.out_of_order AND {line} BETWEEN -2 * w.band AND 1 - 2 * w.band LIMIT 1) AS unordered
            FROM unnest(w_queue, w_band, w_start, w_late_start)
                WITH ORDINALITY AS w (queue, band, start, late_start, n)
            ORDER BY w.n) AS p;  -- sorted once here, not once for each array
        -- Ask for the line of the jobs out of order only where there are any: mostly one look says that there are none.
        IF true = ANY (unordered) THEN
            SELECT array_agg(p.unordered), array_agg(on_time[p.n] OR p.unordered),
                array_agg(late[p.n] OR p.late_unordered),
                array_agg(open[p.n] OR ((p.unordered OR p.late_unordered) AND (unpaused IS NULL OR unpaused[p.n])))
            INTO unordered, on_time, late, open
            FROM (
                SELECT w.n,
                    (SELECT true FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue
                        AND r.out_of_order AND {line} = -2 * w.band LIMIT 1) IS NOT NULL AS unordered,
                    (SELECT true FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue
                        AND r.out_of_order AND {line} = 1 - 2 * w.band LIMIT 1) IS NOT NULL AS late_unordered
                FROM unnest(w_queue, w_band) WITH ORDINALITY AS w (queue, band, n)
                ORDER BY w.n) AS p;
        END IF;
        FOR turn IN 0 .. 2 * wants - 1 LOOP
            DECLARE
                w int := turn % wants + 1;
            BEGIN
                room := most - got;
                EXIT WHEN room <= 0;
                IF turn < wants THEN
                    room := least(room, w_count[w]);
                END IF;
                CONTINUE WHEN room <= 0 OR NOT open[w];
                taken := 0;
                IF late[w] THEN
                    -- Jobs of the middle band have one priority: half of the room from each line is enough, and what is
                    -- not locked stays free for other claimers.
                    share := CASE WHEN on_time[w] AND w_band[w] = 0 THEN (room + 1) / 2 ELSE room END;
                    LOOP
                        -- As `merged` in store/rules/lanes.py: of each priority the first of both lines, then the second
                        -- of both, and so on. The late line begins (late_begins) if just one of the last bits of the
                        -- two first ids is set; where a priority has one line only, it does not matter.
                        RETURN QUERY
                        WITH in_order AS (
                            SELECT r.ctid AS at, r.claim_order, r.due, r.id FROM {s}.job r
                            WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND NOT r.out_of_order
                                AND {line} = -2 * w_band[w] AND r.claim_order = -w_band[w] AND r.due >= w_start[w]
                            ORDER BY r.due, r.id LIMIT share FOR UPDATE SKIP LOCKED),
                        unordered AS (
                            SELECT r.ctid AS at, r.claim_order, r.due, r.id FROM {s}.job r
                            WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND r.out_of_order
                                AND {line} = -2 * w_band[w]
                            ORDER BY r.claim_order, r.due, r.id LIMIT share FOR UPDATE SKIP LOCKED),
                        late_in_order AS (
                            SELECT r.ctid AS at, r.claim_order, r.due, r.id FROM {s}.job r
                            WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND NOT r.out_of_order
                                AND {line} = 1 - 2 * w_band[w] AND r.claim_order = -w_band[w]
                                    AND r.due >= w_late_start[w]
                            ORDER BY r.due, r.id LIMIT share FOR UPDATE SKIP LOCKED),
                        late_unordered AS (
                            SELECT r.ctid AS at, r.claim_order, r.due, r.id FROM {s}.job r
                            WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND r.out_of_order
                                AND {line} = 1 - 2 * w_band[w]
                            ORDER BY r.claim_order, r.due, r.id LIMIT share FOR UPDATE SKIP LOCKED),
                        candidates AS (
                            SELECT *, false AS late FROM in_order UNION ALL SELECT *, false FROM unordered
                            UNION ALL SELECT *, true FROM late_in_order UNION ALL SELECT *, true FROM late_unordered),
                        numbered AS (
                            SELECT *, row_number() OVER (PARTITION BY b.claim_order, b.late ORDER BY b.due, b.id) AS n
                            FROM candidates b),
                        paired AS (
                            SELECT *, 1 = sum(CASE WHEN p.n = 1 THEN get_byte(uuid_send(p.id), 15) & 1 END)
                                OVER (PARTITION BY p.claim_order) AS late_begins
                            FROM numbered p)
                        UPDATE {s}.job j SET state = 2, owner = me, epoch = least(j.epoch, 2147483646) + 1,
                            state_since = now_,
                            key_held_until = CASE WHEN j.key_ttl < 0 THEN 0 ELSE j.key_held_until END
                        WHERE j.ctid = ANY (ARRAY(
                            SELECT d.at FROM paired d ORDER BY d.claim_order, d.n, d.late <> d.late_begins
                            LIMIT room - taken))
                        RETURNING {claimed}, NULL::int[], NULL::bigint[], NULL::bigint[], NULL::bigint, NULL::bigint,
                            NULL::boolean, NULL::boolean;
                        GET DIAGNOSTICS more = ROW_COUNT;
                        taken := taken + more;
                        EXIT WHEN taken = room OR share = room;
                        share := room;  -- one of the lines is at its end: the other fills
                    END LOOP;
                ELSIF unordered[w] THEN
                    RETURN QUERY
                    WITH in_order AS (
                        SELECT r.ctid AS at, r.claim_order, r.due, r.id FROM {s}.job r
                        WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND NOT r.out_of_order
                            AND {line} = -2 * w_band[w] AND r.claim_order = -w_band[w] AND r.due >= w_start[w]
                        ORDER BY r.due, r.id LIMIT room FOR UPDATE SKIP LOCKED),
                    unordered AS (
                        SELECT r.ctid AS at, r.claim_order, r.due, r.id FROM {s}.job r
                        WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND r.out_of_order
                            AND {line} = -2 * w_band[w]
                        ORDER BY r.claim_order, r.due, r.id LIMIT room FOR UPDATE SKIP LOCKED)
                    UPDATE {s}.job j SET state = 2, owner = me, epoch = least(j.epoch, 2147483646) + 1,
                        state_since = now_,
                        key_held_until = CASE WHEN j.key_ttl < 0 THEN 0 ELSE j.key_held_until END
                    WHERE j.ctid = ANY (ARRAY(
                        SELECT b.at FROM (SELECT * FROM in_order UNION ALL SELECT * FROM unordered) AS b
                        ORDER BY b.claim_order, b.due, b.id LIMIT room))
                    RETURNING {claimed}, NULL::int[], NULL::bigint[], NULL::bigint[], NULL::bigint, NULL::bigint,
                        NULL::boolean, NULL::boolean;
                    GET DIAGNOSTICS taken = ROW_COUNT;
                ELSE
                    RETURN QUERY
                    UPDATE {s}.job j SET state = 2, owner = me, epoch = least(j.epoch, 2147483646) + 1,
                        state_since = now_,
                        key_held_until = CASE WHEN j.key_ttl < 0 THEN 0 ELSE j.key_held_until END
                    WHERE j.ctid = ANY (ARRAY(
                        SELECT r.ctid FROM {s}.job r
                        WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND NOT r.out_of_order
                            AND {line} = -2 * w_band[w] AND r.claim_order = -w_band[w] AND r.due >= w_start[w]
                        ORDER BY r.due, r.id LIMIT room FOR UPDATE SKIP LOCKED))
                    RETURNING {claimed}, NULL::int[], NULL::bigint[], NULL::bigint[], NULL::bigint, NULL::bigint,
                        NULL::boolean, NULL::boolean;
                    GET DIAGNOSTICS taken = ROW_COUNT;
                END IF;
                got := got + taken;
                -- Fewer than asked for: this want has no more jobs, so do not ask again.
                open[w] := taken = room;
            END;
        END LOOP;
    END IF;
    IF got > 0 AND NOT EXISTS (
            SELECT FROM {s}.owner o WHERE o.name = me AND o.until >= now_ + lease / 2) THEN
        INSERT INTO {s}.owner AS o (name, until) VALUES (me, now_ + lease)
        ON CONFLICT (name) DO UPDATE SET until = excluded.until WHERE o.until < now_ + lease / 2;
    END IF;
    id := NULL;
    RETURN NEXT;
END
$function$
