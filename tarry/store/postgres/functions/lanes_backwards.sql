-- lanes_backwards_v1: as lanes_v1, in the other direction: those before the last one, then from the very last one on. For
-- a claim beside another one, which goes forwards: so they do not meet in lanes with few jobs.
--
-- Arguments  as of lanes_v1
-- Answer     their names; without closed lanes
-- Cost       one look at lane_open or job_laned for each
CREATE OR REPLACE FUNCTION {s}.lanes_backwards_v1(queue_ text, band_ int, task_ text, by_key boolean, last text, most int)
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
        WITH RECURSIVE before (value) AS (
            SELECT (SELECT o.lane FROM {s}.lane o WHERE o.again IS NULL AND o.queue = queue_ AND o.band = band_
                AND o.task = task_ AND o.lane < last ORDER BY o.lane DESC LIMIT 1)
            UNION ALL SELECT (SELECT o.lane FROM {s}.lane o WHERE o.again IS NULL AND o.queue = queue_
                AND o.band = band_ AND o.task = task_ AND o.lane < b.value ORDER BY o.lane DESC LIMIT 1)
            FROM before b WHERE b.value IS NOT NULL),
        behind (value) AS (
            SELECT (SELECT o.lane FROM {s}.lane o WHERE o.again IS NULL AND o.queue = queue_ AND o.band = band_
                AND o.task = task_ AND o.lane >= coalesce(last, '') ORDER BY o.lane DESC LIMIT 1)
            UNION ALL SELECT (SELECT o.lane FROM {s}.lane o WHERE o.again IS NULL AND o.queue = queue_
                AND o.band = band_ AND o.task = task_ AND o.lane < b.value AND o.lane >= coalesce(last, '')
                ORDER BY o.lane DESC LIMIT 1)
            FROM behind b WHERE b.value IS NOT NULL)
        SELECT array_agg(f.value) INTO found_ FROM (
            SELECT value FROM before WHERE value IS NOT NULL
            UNION ALL SELECT value FROM behind WHERE value IS NOT NULL LIMIT most) AS f;
    ELSE
        WITH RECURSIVE before (value) AS (
            SELECT (SELECT j.lane FROM {s}.job j WHERE j.state = 1 AND j.lane IS NOT NULL AND j.queue = queue_
                AND {band} = -band_ AND j.task = task_ AND j.lane < last ORDER BY j.lane DESC LIMIT 1)
            UNION ALL SELECT (SELECT j.lane FROM {s}.job j WHERE j.state = 1 AND j.lane IS NOT NULL
                AND j.queue = queue_ AND {band} = -band_ AND j.task = task_ AND j.lane < b.value
                ORDER BY j.lane DESC LIMIT 1)
            FROM before b WHERE b.value IS NOT NULL),
        behind (value) AS (
            SELECT (SELECT j.lane FROM {s}.job j WHERE j.state = 1 AND j.lane IS NOT NULL AND j.queue = queue_
                AND {band} = -band_ AND j.task = task_ AND j.lane >= coalesce(last, '') ORDER BY j.lane DESC LIMIT 1)
            UNION ALL SELECT (SELECT j.lane FROM {s}.job j WHERE j.state = 1 AND j.lane IS NOT NULL
                AND j.queue = queue_ AND {band} = -band_ AND j.task = task_ AND j.lane < b.value
                AND j.lane >= coalesce(last, '') ORDER BY j.lane DESC LIMIT 1)
            FROM behind b WHERE b.value IS NOT NULL)
        SELECT array_agg(f.value) INTO found_ FROM (
            SELECT value FROM before WHERE value IS NOT NULL
            UNION ALL SELECT value FROM behind WHERE value IS NOT NULL LIMIT most) AS f;
    END IF;
    RETURN coalesce(found_, '{}');
END
$function$
