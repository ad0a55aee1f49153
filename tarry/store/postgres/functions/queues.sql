-- queues_v1: the queues in which jobs are ready, and the paused ones.
--
-- Arguments
--   w_*      one element for each queue and band that the caller knows: where the jobs in order begin, for those on
--            time and for the late ones (see exchange.sql)
-- Answer     each queue once, and whether it is paused
-- Cost       three looks at job_ready for each known queue and band, one for each gap between known queues, one for
--            each unknown queue, and one of job_laned for each queue that has jobs in lanes.
CREATE OR REPLACE FUNCTION {s}.queues_v1(w_queue text[], w_band smallint[], w_start bigint[], w_late_start bigint[])
RETURNS TABLE (queue text, paused boolean) LANGUAGE plpgsql
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
AS $function$
#variable_conflict use_column
DECLARE
    known text[] := (SELECT coalesce(array_agg(DISTINCT q ORDER BY q), '{}') FROM unnest(w_queue) q);
    ready text[] := '{}';
    found_ text;
    top text;
BEGIN
    FOR w IN 1..coalesce(cardinality(w_queue), 0) LOOP
        IF NOT w_queue[w] = ANY (ready) AND (
                EXISTS (SELECT FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w]
                    AND NOT r.out_of_order AND {line} = -2 * w_band[w] AND r.claim_order = -w_band[w]
                        AND r.due >= w_start[w])
                OR EXISTS (SELECT FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w]
                    AND NOT r.out_of_order AND {line} = 1 - 2 * w_band[w] AND r.claim_order = -w_band[w]
                    AND r.due >= w_late_start[w])
                OR EXISTS (SELECT FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w]
                    AND r.out_of_order AND {line} BETWEEN -2 * w_band[w] AND 1 - 2 * w_band[w])) THEN
            ready := ready || w_queue[w];
        END IF;
    END LOOP;
    -- Look only between the known queues, so that index entries of their deleted rows are not read.
    FOR g IN 0..cardinality(known) LOOP
        found_ := CASE WHEN g = 0 THEN '' ELSE known[g] END;  -- no queue has the empty name
        top := CASE WHEN g < cardinality(known) THEN known[g + 1] END;
        LOOP
            IF top IS NULL THEN
                found_ := (SELECT r.queue FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue > found_
                    ORDER BY r.queue LIMIT 1);
            ELSE
                found_ := (SELECT r.queue FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue > found_
                    AND r.queue < top ORDER BY r.queue LIMIT 1);
            END IF;
            EXIT WHEN found_ IS NULL;
            ready := ready || found_;
        END LOOP;
    END LOOP;
    found_ := (SELECT r.queue FROM {s}.job r WHERE r.state = 1 AND r.lane IS NOT NULL ORDER BY r.queue LIMIT 1);
    WHILE found_ IS NOT NULL LOOP
        ready := ready || found_;
        found_ := (SELECT r.queue FROM {s}.job r WHERE r.state = 1 AND r.lane IS NOT NULL AND r.queue > found_
            ORDER BY r.queue LIMIT 1);
    END LOOP;
    RETURN QUERY
    SELECT q, EXISTS (SELECT FROM {s}.paused p WHERE p.queue = q)
    FROM (SELECT unnest(ready) AS q UNION SELECT p.queue FROM {s}.paused p) AS named;
END
$function$
