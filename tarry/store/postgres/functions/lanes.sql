-- lanes_v1: lanes of a task where jobs may wait, from the one whose turn it is.
--
-- Arguments
--   queue_, band_, task_   where
--   by_key   the task has a limit for each key: only open lanes count, and those of `freed`
--   freed    lanes that may be closed, and have room nonetheless
--   last     the lane that was served last; NULL: none
--   most     how many at most
-- Answer     their names: those behind the last one, then those up to it; one that is there twice may come twice
-- Cost       one look at lane_open or job_laned for each; one at lane_closed for each of `freed`
CREATE OR REPLACE FUNCTION {s}.lanes_v1(queue_ text, band_ int, task_ text, by_key boolean, freed text[], last text,
    most int)
RETURNS text[] LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET plan_cache_mode = force_generic_plan
AS $function$
DECLARE
    found_ text[];
BEGIN
    -- Lazily: what LIMIT does not ask for is not read.
    IF by_key THEN
        WITH RECURSIVE behind (value) AS (
            SELECT (SELECT o.lane FROM {s}.lane o WHERE o.again IS NULL AND o.queue = queue_ AND o.band = band_
                AND o.task = task_ AND o.lane > last ORDER BY o.lane LIMIT 1)
            UNION ALL SELECT (SELECT o.lane FROM {s}.lane o WHERE o.again IS NULL AND o.queue = queue_
                AND o.band = band_ AND o.task = task_ AND o.lane > b.value ORDER BY o.lane LIMIT 1)
            FROM behind b WHERE b.value IS NOT NULL),
        before (value) AS (
            SELECT (SELECT o.lane FROM {s}.lane o WHERE o.again IS NULL AND o.queue = queue_ AND o.band = band_
                AND o.task = task_ AND o.lane >= '' ORDER BY o.lane LIMIT 1)
            UNION ALL SELECT (SELECT o.lane FROM {s}.lane o WHERE o.again IS NULL AND o.queue = queue_
                AND o.band = band_ AND o.task = task_ AND o.lane > b.value ORDER BY o.lane LIMIT 1)
            FROM before b WHERE b.value IS NOT NULL AND (last IS NULL OR b.value < last))
        SELECT array_agg(f.value) INTO found_ FROM (
            SELECT value FROM behind WHERE value IS NOT NULL
            UNION ALL SELECT value FROM before WHERE value IS NOT NULL AND (last IS NULL OR value <= last)
            LIMIT most) AS f;
        IF cardinality(freed) > 0 THEN
            -- Only if most were found some may be missing, and those come behind all of these.
            SELECT array_agg(f.value) INTO found_ FROM (
                SELECT u.value FROM (
                    SELECT value FROM unnest(found_) AS o (value)
                    UNION SELECT n.name FROM unnest(freed) AS n (name)
                    WHERE (SELECT true FROM {s}.lane c WHERE c.again IS NOT NULL AND c.task = task_ AND c.lane = n.name
                        AND c.queue = queue_ AND c.band = band_ LIMIT 1)) AS u
                ORDER BY last IS NOT NULL AND u.value COLLATE "C" <= last, u.value COLLATE "C" LIMIT most) AS f;
        END IF;
    ELSE
        WITH RECURSIVE behind (value) AS (
            SELECT (SELECT j.lane FROM {s}.job j WHERE j.state = 1 AND j.lane IS NOT NULL AND j.queue = queue_
                AND {band} = -band_ AND j.task = task_ AND j.lane > last ORDER BY j.lane LIMIT 1)
            UNION ALL SELECT (SELECT j.lane FROM {s}.job j WHERE j.state = 1 AND j.lane IS NOT NULL
                AND j.queue = queue_ AND {band} = -band_ AND j.task = task_ AND j.lane > b.value
                ORDER BY j.lane LIMIT 1)
            FROM behind b WHERE b.value IS NOT NULL),
        before (value) AS (
            SELECT (SELECT j.lane FROM {s}.job j WHERE j.state = 1 AND j.lane IS NOT NULL AND j.queue = queue_
                AND {band} = -band_ AND j.task = task_ AND j.lane >= '' ORDER BY j.lane LIMIT 1)
            UNION ALL SELECT (SELECT j.lane FROM {s}.job j WHERE j.state = 1 AND j.lane IS NOT NULL
                AND j.queue = queue_ AND {band} = -band_ AND j.task = task_ AND j.lane > b.value
                ORDER BY j.lane LIMIT 1)
            FROM before b WHERE b.value IS NOT NULL AND (last IS NULL OR b.value < last))
        SELECT array_agg(f.value) INTO found_ FROM (
            SELECT value FROM behind WHERE value IS NOT NULL
            UNION ALL SELECT value FROM before WHERE value IS NOT NULL AND (last IS NULL OR value <= last)
            LIMIT most) AS f;
    END IF;
    RETURN coalesce(found_, '{}');
END
$function$
