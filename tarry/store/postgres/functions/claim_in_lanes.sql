-- claim_in_lanes_v1: chooses the jobs of a claim under limits, and writes what it and the ends before it do to levels
-- and turns. For exchange_v1 alone, which has the settings.
--
-- Claims choose side by side: they read levels without a lock. Only then does each take its turn, by the level rows of
-- tasks and queues, and reads the levels again. If another one has taken what this one has chosen, it chooses anew, now
-- with the lock. Nobody waits for a job while holding a lock of levels.
--
-- The attempts that end with a claim lower levels, and the claim raises mostly the same ones: each is written once.
--
-- Arguments
--   w_*      one element for each want: queue, band, how many jobs
--   most     how many in all
--   now_     microseconds
--   e_name, e_count   levels to lower, and by how much
-- Answer
--   done     NULL: nothing was written, and the caller lowers the levels and claims in another way
--   chosen   the jobs to start, which are locked
--   again    if there are none: when a rate allows a start. 0: come again at once, there may be more
--   has_made_room   more may start under some limit than before
--   d_*      lanes that may be empty once these jobs have started
-- Cost       that of choose_in_lanes_v1, mostly once; two rows of level for each limit and each lane that has a turn
CREATE OR REPLACE FUNCTION {s}.claim_in_lanes_v1(w_queue text[], w_band smallint[], w_count int[], most int,
    now_ bigint, e_name text[], e_count bigint[], OUT done boolean, OUT chosen tid[], OUT again bigint,
    OUT has_made_room boolean, OUT d_queue text[], OUT d_band int[], OUT d_task text[], OUT d_lane text[])
LANGUAGE plpgsql
AS $function$
#variable_conflict use_column
DECLARE
    choice record;
    is_locked boolean := false;
    locked text[];  -- the limits whose levels it has locked
    is_over boolean;  -- more were chosen than may start
    names text[];
    starts bigint[];
    ends bigint[];
    ended jsonb := coalesce(jsonb_object(e_name, e_count::text[]), '{}');
BEGIN
    LOOP
        SELECT * INTO choice
        FROM {s}.choose_in_lanes_v1(w_queue, w_band, w_count, most, now_, e_name, e_count, is_locked);
        -- While it waited for levels there came jobs of other tasks: those levels may change yet. To lock them now would
        -- be out of order.
        IF choice.done IS NULL OR NOT choice.l_name <@ locked THEN
            RETURN;
        END IF;
        is_over := NOT choice.done;
        IF choice.done THEN
            IF NOT is_locked AND cardinality(choice.chosen) + cardinality(choice.d_lane) > 0 THEN
                PERFORM {s}.lock_claims_v1(choice.l_name, e_name);
            END IF;
            SELECT array_agg(o.name), array_agg(o.starts), array_agg(o.ends),
                coalesce(bool_or(o.starts < o.ends), false), coalesce(bool_or(o.room < o.starts), false)
            INTO names, starts, ends, has_made_room, is_over FROM (
                SELECT n.*, (
                    -- LIMIT keeps the planner from joining: it would read all levels. Mostly there is room enough.
                    SELECT CASE WHEN choice.has_rate OR l.running + n.starts > choice.l_least THEN ({s}.room_under_v1(
                        choice.l_numbers[array_position(choice.l_name, split_part(n.name, chr(31), 1))]::bigint[], n.name,
                        l.running, l.next, ended, '{}', now_)).room END
                    FROM {s}.level l WHERE l.name = n.name AND n.starts > 0 AND NOT is_locked LIMIT 1) AS room
                FROM (
                    SELECT b.name, sum(b.starts)::bigint AS starts, sum(b.ends)::bigint AS ends FROM (
                        SELECT n.name, n.starts, 0 AS ends
                        FROM {s}.count_levels_v1(choice.c_queue, choice.c_task, choice.c_lane) AS n
                        UNION ALL SELECT e.name, 0, e.ends FROM unnest(e_name, e_count) AS e (name, ends)) AS b
                    GROUP BY b.name) AS n OFFSET 0) AS o;
            -- Those of before do not count any more.
            is_over := is_over OR NOT is_locked AND EXISTS (
                SELECT FROM unnest(choice.l_name, choice.l_numbers) AS c (name, numbers) WHERE c.numbers IS DISTINCT FROM (
                    SELECT {s}.limit_numbers_v1(l.value)::text FROM {s}.limits l WHERE l.name = c.name));
        ELSE
            PERFORM {s}.lock_claims_v1(choice.l_name, e_name);
        END IF;
        EXIT WHEN NOT is_over;
        is_locked := true;
        locked := choice.l_name;
    END LOOP;
    chosen := choice.chosen; again := choice.again;
    d_queue := choice.d_queue; d_band := choice.d_band; d_task := choice.d_task; d_lane := choice.d_lane;
    IF cardinality(chosen) > 0 THEN
        -- Another claim may write a turn just now: one of both is enough.
        UPDATE {s}.level l SET turn = t.turn FROM unnest(choice.t_turn, choice.t_last) AS t (name, turn)
        WHERE l.ctid = ANY (ARRAY(
                SELECT o.ctid FROM {s}.level o WHERE o.name = ANY (choice.t_turn) FOR UPDATE SKIP LOCKED))
            AND l.name = t.name AND l.turn IS DISTINCT FROM t.turn;
        INSERT INTO {s}.level SELECT t.name, 0, 0, t.turn FROM unnest(choice.t_turn, choice.t_last) AS t (name, turn)
        WHERE t.turn IS NOT NULL AND (SELECT true FROM {s}.level l WHERE l.name = t.name) IS NULL
        ORDER BY t.name COLLATE "C" ON CONFLICT DO NOTHING;
    END IF;
    IF names IS NOT NULL THEN
        PERFORM {s}.change_levels_v1(names, starts, ends, choice.has_rate, now_);
    END IF;
    done := true;
END
$function$
