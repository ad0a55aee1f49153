-- change_levels_v1: writes what has started and ended to levels, and opens lanes that were closed and have room now.
--
-- Arguments
--   names, s_count, e_count   levels, each once, and how many have started and ended under each
--   has_rate  whether any of them may have a rate
--   now_     microseconds
-- Cost       locks and writes one row of level for each; one look at lane_closed for each key of which an attempt has
--            ended. Rows of keys of which nothing runs any more are left to DROP_LEVELS: their next start is an update.
CREATE OR REPLACE FUNCTION {s}.change_levels_v1(names text[], s_count bigint[], e_count bigint[], has_rate boolean,
    now_ bigint)
RETURNS void LANGUAGE plpgsql
    SET enable_nestloop = on
AS $function$
#variable_conflict use_column
DECLARE
    found_ int;
BEGIN
    -- One order for all: those of tasks and queues first, which claims have locked already.
    PERFORM FROM {s}.level WHERE name = ANY (names) ORDER BY starts_with(name, 'each:'), name FOR UPDATE;
    UPDATE {s}.level l SET running = greatest(0, l.running - c.ends) + c.starts
    FROM unnest(names, s_count, e_count) AS c (name, starts, ends) WHERE l.name = c.name;
    GET DIAGNOSTICS found_ = ROW_COUNT;
    IF found_ < cardinality(names) THEN
        INSERT INTO {s}.level AS l (name, running, next)
        SELECT c.name, c.starts, 0 FROM unnest(names, s_count) AS c (name, starts)
        WHERE c.starts > 0 AND NOT EXISTS (SELECT FROM {s}.level o WHERE o.name = c.name) ORDER BY c.name COLLATE "C"
        ON CONFLICT (name) DO UPDATE SET running = l.running + excluded.running;
    END IF;
    IF has_rate THEN
        -- Not before now: time in which nothing started must not add up to a burst.
        WITH known AS MATERIALIZED (
            SELECT o.name, {s}.limit_numbers_v1(o.value) AS numbers FROM {s}.limits o
            WHERE o.name IN (SELECT split_part(n.name, chr(31), 1) FROM unnest(names) AS n (name)))
        UPDATE {s}.level l SET next = greatest(CASE WHEN l.next <= now_ + m.numbers[5] THEN l.next ELSE now_ END, now_)
            + c.starts * m.numbers[4]
        FROM unnest(names, s_count) AS c (name, starts) JOIN known m ON m.name = split_part(c.name, chr(31), 1)
        WHERE l.name = c.name AND c.starts > 0 AND m.numbers[2] > 0;
    END IF;
    -- After the levels, which a claim locks before it closes their lanes.
    IF EXISTS (SELECT FROM {s}.lane WHERE again IS NOT NULL)
            AND EXISTS (SELECT FROM unnest(names, e_count) AS c (name, ends) WHERE c.ends > 0 AND starts_with(c.name, 'each:'))
            THEN
        WITH ended AS MATERIALIZED (
            SELECT c.name, split_part(c.name, chr(31), 1) AS limit_name FROM unnest(names, e_count) AS c (name, ends)
            WHERE c.ends > 0 AND starts_with(c.name, 'each:')),
        known AS MATERIALIZED (
            SELECT o.name, {s}.limit_numbers_v1(o.value) AS numbers FROM {s}.limits o
            WHERE o.name IN (SELECT limit_name FROM ended)),
        with_room AS MATERIALIZED (
            SELECT substr(k.name, 6) AS task, substr(e.name, length(k.name) + 2) AS lane
            FROM ended e JOIN known k ON k.name = e.limit_name LEFT JOIN {s}.level l ON l.name = e.name
            WHERE NOT coalesce(k.numbers[2] = 0 AND l.running >= k.numbers[1], false))
        -- What others have locked they open themselves; to wait for them would be a circle, since they may wait for a level.
        UPDATE {s}.lane SET again = NULL WHERE ctid = ANY (ARRAY(
            SELECT c.ctid FROM with_room r JOIN {s}.lane c ON c.task = r.task AND c.lane = r.lane
            WHERE c.again IS NOT NULL FOR UPDATE OF c SKIP LOCKED));
    END IF;
END
$function$
