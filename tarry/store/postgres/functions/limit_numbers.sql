-- limit_numbers_v1: what a limit says, as numbers: how many at once (NULL: any number), the rate's count (0: there is
-- no rate), how many of it may start at the same moment, how far apart the others are, and how far ahead its next
-- start is at most. As tarry/model/limit.py.
--
-- Arguments  the value in the table limits
-- Answer     NULL: some keys have numbers of their own, or it is not what this version writes
-- Cost       no look at a table
CREATE OR REPLACE FUNCTION {s}.limit_numbers_v1(value bytea) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE
AS $function$
DECLARE
    -- Not by a regular expression: that costs a hundred times as much.
    parts text[] := string_to_array(encode(value, 'escape'), ',');
    most text := substr(parts[1], 9);
    count_ bigint;
    period bigint;
    at_once bigint;
    spacing bigint := 0;
BEGIN
    -- A limit that several stores share ends, which only Python knows.
    IF cardinality(parts) <> 7 OR parts[7] <> '"share":null}' OR substr(parts[1], 2, 7) <> '"most":' OR left(parts[2], 8) <> '"count":'
            OR left(parts[3], 9) <> '"period":' OR parts[4] <> '"has_key_limits":false'
            OR left(parts[5], 9) <> '"weight":' OR parts[6] <> '"has_weights":false'
            OR length(parts[1]) NOT BETWEEN 9 AND 18 OR length(parts[2]) NOT BETWEEN 9 AND 18
            OR length(parts[3]) NOT BETWEEN 10 AND 24
            OR btrim(substr(parts[2], 9) || substr(parts[3], 10) || CASE WHEN most = 'null' THEN '' ELSE most END,
                '0123456789') <> '' THEN
        RETURN NULL;
    END IF;
    count_ := substr(parts[2], 9);
    period := substr(parts[3], 10);
    at_once := greatest(1, count_ / 20);
    IF count_ > 0 THEN
        spacing := (period + count_ - at_once) / (count_ - at_once + 1);
    END IF;
    RETURN ARRAY[CASE WHEN most <> 'null' THEN most::bigint END, count_, at_once, spacing,
        at_once * spacing + {longest_debt} * period];
END
$function$
