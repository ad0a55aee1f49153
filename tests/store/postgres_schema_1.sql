-- The schema of version 1 as tarry made it before its functions stood in .sql files (c8bbb91). Databases that were made
-- then keep these functions, so what calls them must go on to work. Never change this file. {s} is the schema.
CREATE TABLE {s}.job (
    id         uuid PRIMARY KEY,
    rank       bigint NOT NULL,
    due        bigint NOT NULL,
    since      bigint NOT NULL,
    until      bigint NOT NULL,
    expires    bigint NOT NULL,
    unique_for bigint NOT NULL,
    holds      bigint NOT NULL,
    epoch      integer NOT NULL,
    failures   integer NOT NULL,
    losses     integer NOT NULL,
    state      smallint NOT NULL,
    aside      boolean NOT NULL,
    queue      text COLLATE "C" NOT NULL,
    task       text COLLATE "C" NOT NULL,
    owner      text COLLATE "C",
    key        text COLLATE "C",
    lane       text COLLATE "C",
    body       bytea NOT NULL,
    note       bytea NOT NULL,
    headers    bytea NOT NULL,
    progress   bytea NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1,
    autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_insert_threshold = 100000, vacuum_truncate = off,
    toast.autovacuum_vacuum_scale_factor = 0.05, toast.vacuum_truncate = off
);
CREATE INDEX job_ready     ON {s}.job (queue, aside, (((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int), rank, due, id) WHERE state = 1 AND lane IS NULL;
CREATE INDEX job_laned     ON {s}.job (queue, ((rank > 0)::int - (rank < 0)::int), task, lane, rank, due, id)
    WHERE state = 1 AND lane IS NOT NULL;
CREATE INDEX job_scheduled ON {s}.job (aside, due, id) WHERE state = 0;
CREATE INDEX job_running   ON {s}.job (owner) WHERE state = 2;
CREATE INDEX job_finished  ON {s}.job (until, id) WHERE state >= 3;
CREATE UNIQUE INDEX job_key ON {s}.job (task, key) WHERE key IS NOT NULL AND holds > 0;
CREATE TABLE {s}.owner  (name text COLLATE "C" PRIMARY KEY, until bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE {s}.hold   (name text COLLATE "C" PRIMARY KEY, owner text NOT NULL, until bigint NOT NULL)
    WITH (fillfactor = 50);
CREATE TABLE {s}.paused (queue text COLLATE "C" PRIMARY KEY);
CREATE TABLE {s}.cell   (name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE {s}.limits (name text COLLATE "C" PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE {s}.level  (name text COLLATE "C" PRIMARY KEY, running bigint NOT NULL, next bigint NOT NULL,
    turn text COLLATE "C") WITH (fillfactor = 50);
CREATE TABLE {s}.lane   (queue text COLLATE "C" NOT NULL, band smallint NOT NULL, task text COLLATE "C" NOT NULL,
    lane text COLLATE "C" NOT NULL, again bigint)
    WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
CREATE INDEX lane_open   ON {s}.lane (queue, band, task, lane) WHERE again IS NULL;
CREATE INDEX lane_closed ON {s}.lane (task, lane) WHERE again IS NOT NULL;
CREATE INDEX lane_again  ON {s}.lane (again) WHERE again IS NOT NULL;
CREATE TABLE {s}.about  (name text COLLATE "C" PRIMARY KEY, value text NOT NULL);
INSERT INTO {s}.about VALUES ('schema', '0'), ('identity', gen_random_uuid()::text);
CREATE FUNCTION {s}.insert_v1(p_id uuid[], p_kind int[], p_due bigint[], p_since bigint[], p_body bytea[],
    k_task text[], k_queue text[], k_rank bigint[], k_state smallint[], k_epoch int[], k_failures int[], k_losses int[],
    k_until bigint[], k_expires bigint[], k_key text[], k_note bytea[], k_unique bigint[], k_holds bigint[],
    k_lane text[], k_headers bytea[], k_progress bytea[], keyed boolean, apart boolean, channel text, token text)
RETURNS TABLE (place bigint, lives bytea) LANGUAGE plpgsql 
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
 AS $function$
#variable_conflict use_column
DECLARE
    limited boolean := EXISTS (SELECT l.name FROM {s}.limits l);
    in_line_from bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 1000000;
    new record;
    holder uuid;
BEGIN
    IF NOT keyed THEN
        BEGIN
            INSERT INTO {s}.job (id, task, body, queue, rank, due, state, epoch, failures, losses, since, until, expires, key, note,
        unique_for, holds, lane, headers, progress, aside)
            SELECT id, task, body, queue, rank, due, state, epoch, failures, losses, since, until, expires, key, note,
        unique_for, holds, lane, headers, progress, aside FROM (
        SELECT p.id, k.task, p.body, k.queue, k.rank, p.due, k.state, k.epoch, k.failures, k.losses, p.since, k.until,
            k.expires, k.key, k.note, k.unique_for, k.holds,
            CASE WHEN limited AND k.lane IS NULL AND EXISTS (
                SELECT l.name FROM {s}.limits l WHERE l.name IN ('task:' || k.task, 'each:' || k.task)) THEN '' ELSE k.lane END AS lane,
            k.headers, k.progress, apart OR p.due < in_line_from OR (k.state = 1 AND abs(k.rank) > 1) AS aside, p.n
        FROM unnest(p_id, p_kind, p_due, p_since, p_body) WITH ORDINALITY AS p (id, kind, due, since, body, n)
        JOIN unnest(k_task, k_queue, k_rank, k_state, k_epoch, k_failures, k_losses, k_until, k_expires, k_key, k_note,
            k_unique, k_holds, k_lane, k_headers, k_progress) WITH ORDINALITY
            AS k (task, queue, rank, state, epoch, failures, losses, until, expires, key, note, unique_for, holds, lane,
            headers, progress, kind)
        ON k.kind = p.kind) AS new;
        EXCEPTION WHEN unique_violation THEN
            INSERT INTO {s}.job (id, task, body, queue, rank, due, state, epoch, failures, losses, since, until, expires, key, note,
        unique_for, holds, lane, headers, progress, aside)
            SELECT id, task, body, queue, rank, due, state, epoch, failures, losses, since, until, expires, key, note,
        unique_for, holds, lane, headers, progress, aside FROM (
        SELECT p.id, k.task, p.body, k.queue, k.rank, p.due, k.state, k.epoch, k.failures, k.losses, p.since, k.until,
            k.expires, k.key, k.note, k.unique_for, k.holds,
            CASE WHEN limited AND k.lane IS NULL AND EXISTS (
                SELECT l.name FROM {s}.limits l WHERE l.name IN ('task:' || k.task, 'each:' || k.task)) THEN '' ELSE k.lane END AS lane,
            k.headers, k.progress, apart OR p.due < in_line_from OR (k.state = 1 AND abs(k.rank) > 1) AS aside, p.n
        FROM unnest(p_id, p_kind, p_due, p_since, p_body) WITH ORDINALITY AS p (id, kind, due, since, body, n)
        JOIN unnest(k_task, k_queue, k_rank, k_state, k_epoch, k_failures, k_losses, k_until, k_expires, k_key, k_note,
            k_unique, k_holds, k_lane, k_headers, k_progress) WITH ORDINALITY
            AS k (task, queue, rank, state, epoch, failures, losses, until, expires, key, note, unique_for, holds, lane,
            headers, progress, kind)
        ON k.kind = p.kind) AS new
            ORDER BY id ON CONFLICT DO NOTHING;
        END;
    ELSE
        -- In the order of keys: two such batches at a time wait for each other, but not in a circle.
        FOR new IN SELECT * FROM (
        SELECT p.id, k.task, p.body, k.queue, k.rank, p.due, k.state, k.epoch, k.failures, k.losses, p.since, k.until,
            k.expires, k.key, k.note, k.unique_for, k.holds,
            CASE WHEN limited AND k.lane IS NULL AND EXISTS (
                SELECT l.name FROM {s}.limits l WHERE l.name IN ('task:' || k.task, 'each:' || k.task)) THEN '' ELSE k.lane END AS lane,
            k.headers, k.progress, apart OR p.due < in_line_from OR (k.state = 1 AND abs(k.rank) > 1) AS aside, p.n
        FROM unnest(p_id, p_kind, p_due, p_since, p_body) WITH ORDINALITY AS p (id, kind, due, since, body, n)
        JOIN unnest(k_task, k_queue, k_rank, k_state, k_epoch, k_failures, k_losses, k_until, k_expires, k_key, k_note,
            k_unique, k_holds, k_lane, k_headers, k_progress) WITH ORDINALITY
            AS k (task, queue, rank, state, epoch, failures, losses, until, expires, key, note, unique_for, holds, lane,
            headers, progress, kind)
        ON k.kind = p.kind) AS new ORDER BY task, key, n LOOP
            CONTINUE WHEN EXISTS (SELECT FROM {s}.job j WHERE j.id = new.id);
            FOR attempt IN 1..20 LOOP
                UPDATE {s}.job j SET holds = 0
                WHERE j.task = new.task AND j.key = new.key AND j.holds > 0 AND j.holds <= new.since;
                INSERT INTO {s}.job (id, task, body, queue, rank, due, state, epoch, failures, losses, since, until, expires, key, note,
        unique_for, holds, lane, headers, progress, aside) VALUES (new.id, new.task, new.body, new.queue, new.rank,
                    new.due, new.state, new.epoch, new.failures, new.losses, new.since, new.until, new.expires,
                    new.key, new.note, new.unique_for, new.holds, new.lane, new.headers, new.progress, new.aside)
                ON CONFLICT DO NOTHING;
                EXIT WHEN FOUND OR EXISTS (SELECT FROM {s}.job j WHERE j.id = new.id);
                SELECT j.id INTO holder FROM {s}.job j
                WHERE j.task = new.task AND j.key = new.key AND j.holds > 0 AND j.holds > new.since;
                IF FOUND THEN
                    place := new.n; lives := uuid_send(holder);
                    RETURN NEXT;
                    EXIT;
                END IF;
            END LOOP;
        END LOOP;
    END IF;
    IF limited THEN
        INSERT INTO {s}.lane (queue, band, task, lane)
            SELECT DISTINCT k.queue, (k.rank < 0)::int - (k.rank > 0)::int, k.task,
                coalesce(k.lane, '')
            FROM unnest(k_task, k_queue, k_rank, k_state, k_lane) AS k (task, queue, rank, state, lane) WHERE k.state = 1 AND EXISTS (SELECT FROM {s}.limits e WHERE e.name = 'each:' || k.task);
    END IF;
    IF channel IS NOT NULL THEN
        PERFORM pg_notify(channel, token);
    END IF;
END
$function$;
CREATE FUNCTION {s}.ended_v1(e_id uuid[], e_queue text[], e_task text[], e_lane text[], made uuid[], now_ bigint)
RETURNS void LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    names text[];
    counts bigint[];
BEGIN
    WITH ended AS (
        SELECT queue, task, lane FROM unnest(e_id, e_queue, e_task, e_lane) AS e (id, queue, task, lane)
        WHERE id = ANY (made)),
    named AS (
        SELECT 'queue:' || queue AS name FROM ended
        UNION ALL SELECT 'task:' || task FROM ended WHERE lane IS NOT NULL
        UNION ALL SELECT 'each:' || task || chr(31) || lane FROM ended WHERE lane IS NOT NULL),
    counted AS (
        SELECT name, count(*) AS n FROM named WHERE split_part(name, chr(31), 1) IN (SELECT l.name FROM {s}.limits l) GROUP BY name)
    SELECT array_agg(name), array_agg(n) INTO names, counts FROM counted;
    IF names IS NULL THEN
        RETURN;
    END IF;
    PERFORM FROM {s}.level WHERE name = ANY (names) ORDER BY starts_with(name, 'each:'), name FOR UPDATE;
    UPDATE {s}.level l SET running = greatest(0, l.running - e.n)
    FROM unnest(names, counts) AS e (name, n) WHERE l.name = e.name;
    -- After the levels, which a claim locks before it closes their lanes.
    UPDATE {s}.lane SET again = NULL WHERE again IS NOT NULL AND (task, lane) IN (
        SELECT e.task, e.lane FROM unnest(e_id, e_task, e_lane) AS e (id, task, lane) WHERE e.id = ANY (made));
    DELETE FROM {s}.level
    WHERE name = ANY (names) AND starts_with(name, 'each:') AND running = 0 AND next <= now_;
END
$function$;
CREATE FUNCTION {s}.apply_v1(c_id uuid[], c_kind int[], c_note bytea[], k_was smallint[], k_epoch int[], k_to smallint[],
    k_since bigint[], k_due bigint[], k_failures int[], k_losses int[], k_until bigint[], k_queue text[],
    k_rank bigint[], k_expires bigint[], k_holds bigint[], k_body bytea[], k_owner text[], singly boolean, now_ bigint)
RETURNS int[] LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    in_line_from bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 1000000;
    limited boolean := EXISTS (SELECT l.name FROM {s}.limits l);
    made int[];
    gone int[];
    e_id uuid[];
    e_queue text[];
    e_task text[];
    e_lane text[];
    c record;
BEGIN
    IF limited THEN
        
        SELECT array_agg(j.id), array_agg(j.queue), array_agg(j.task), array_agg(j.lane)
        INTO e_id, e_queue, e_task, e_lane FROM (
            SELECT id, queue, task, lane FROM {s}.job
            WHERE state = 2 AND (id, epoch, owner) IN (
                SELECT p.id, k.epoch, k.owner FROM unnest(c_id, c_kind) AS p (id, kind)
                JOIN unnest(k_was, k_epoch, k_owner) WITH ORDINALITY AS k (was, epoch, owner, kind)
                ON k.kind = p.kind WHERE k.was = 2)
            ORDER BY id FOR UPDATE) AS j;
    END IF;
    IF NOT singly THEN
        WITH updated AS (
            UPDATE {s}.job j SET state = c.become, owner = NULL, since = c.since, due = coalesce(c.due, j.due), failures = c.failures,
            losses = c.losses, until = c.until, note = c.note, queue = coalesce(c.queue, j.queue),
            rank = coalesce(c.rank, j.rank), expires = coalesce(c.expires, j.expires),
            holds = coalesce(c.holds, j.holds), body = coalesce(c.body, j.body),
            aside = c.become <= 1 AND (coalesce(c.due, j.due) < in_line_from
                OR (c.become = 1 AND abs(coalesce(c.rank, j.rank)) > 1))
            FROM (SELECT p.id, p.note, p.n, k.* FROM 
        unnest(c_id, c_kind, c_note) WITH ORDINALITY AS p (id, kind, note, n)
        JOIN unnest(k_was, k_epoch, k_to, k_since, k_due, k_failures, k_losses, k_until, k_queue, k_rank, k_expires,
            k_holds, k_body, k_owner) WITH ORDINALITY
            AS k (was, epoch, become, since, due, failures, losses, until, queue, rank, expires, holds, body, owner,
            kind)
        ON k.kind = p.kind) AS c
            WHERE j.id = c.id AND j.state = c.was AND j.epoch = c.epoch AND j.owner IS NOT DISTINCT FROM c.owner AND c.become IS NOT NULL RETURNING c.n)
        SELECT coalesce(array_agg(n::int), '{}') INTO made FROM updated;
        IF array_position(k_to, NULL) IS NOT NULL THEN
            WITH deleted AS (
                DELETE FROM {s}.job j USING (SELECT p.id, p.n, k.* FROM 
        unnest(c_id, c_kind, c_note) WITH ORDINALITY AS p (id, kind, note, n)
        JOIN unnest(k_was, k_epoch, k_to, k_since, k_due, k_failures, k_losses, k_until, k_queue, k_rank, k_expires,
            k_holds, k_body, k_owner) WITH ORDINALITY
            AS k (was, epoch, become, since, due, failures, losses, until, queue, rank, expires, holds, body, owner,
            kind)
        ON k.kind = p.kind) AS c
                WHERE j.id = c.id AND j.state = c.was AND j.epoch = c.epoch AND j.owner IS NOT DISTINCT FROM c.owner AND c.become IS NULL RETURNING c.n)
            SELECT coalesce(array_agg(n::int), '{}') INTO gone FROM deleted;
            made := made || gone;
        END IF;
        IF limited THEN
            PERFORM {s}.ended_v1(e_id, e_queue, e_task, e_lane, ARRAY(SELECT c_id[m] FROM unnest(made) AS m), now_);
        END IF;
        IF limited AND 3 <= ANY (k_was) THEN
            UPDATE {s}.job SET lane = '' WHERE id = ANY (c_id) AND lane IS NULL AND state < 2
            AND ('task:' || task IN (SELECT l.name FROM {s}.limits l) OR 'each:' || task IN (SELECT l.name FROM {s}.limits l));
        END IF;
        IF limited AND 1 = ANY (k_to) THEN
            INSERT INTO {s}.lane (queue, band, task, lane)
            SELECT DISTINCT j.queue, (j.rank < 0)::int - (j.rank > 0)::int, j.task,
                coalesce(j.lane, '')
            FROM {s}.job j WHERE j.id = ANY (c_id) AND j.state = 1 AND j.lane IS NOT NULL AND EXISTS (SELECT FROM {s}.limits e WHERE e.name = 'each:' || j.task);
        END IF;
        RETURN made;
    END IF;
    made := '{}';
    FOR c IN SELECT p.id, p.note, p.n, k.* FROM 
        unnest(c_id, c_kind, c_note) WITH ORDINALITY AS p (id, kind, note, n)
        JOIN unnest(k_was, k_epoch, k_to, k_since, k_due, k_failures, k_losses, k_until, k_queue, k_rank, k_expires,
            k_holds, k_body, k_owner) WITH ORDINALITY
            AS k (was, epoch, become, since, due, failures, losses, until, queue, rank, expires, holds, body, owner,
            kind)
        ON k.kind = p.kind ORDER BY p.n LOOP
        IF c.become IS NULL THEN
            DELETE FROM {s}.job j WHERE j.id = c.id AND j.state = c.was AND j.epoch = c.epoch AND j.owner IS NOT DISTINCT FROM c.owner;
            made := CASE WHEN FOUND THEN made || c.n::int ELSE made END;
            CONTINUE;
        END IF;
        IF c.holds > 0 THEN
            UPDATE {s}.job j SET holds = 0 WHERE j.holds BETWEEN 1 AND now_ AND (j.task, j.key) =
                (SELECT o.task, o.key FROM {s}.job o WHERE o.id = c.id AND o.state = c.was AND o.epoch = c.epoch);
        END IF;
        BEGIN
            UPDATE {s}.job j SET state = c.become, owner = NULL, since = c.since, due = coalesce(c.due, j.due), failures = c.failures,
            losses = c.losses, until = c.until, note = c.note, queue = coalesce(c.queue, j.queue),
            rank = coalesce(c.rank, j.rank), expires = coalesce(c.expires, j.expires),
            holds = coalesce(c.holds, j.holds), body = coalesce(c.body, j.body),
            aside = c.become <= 1 AND (coalesce(c.due, j.due) < in_line_from
                OR (c.become = 1 AND abs(coalesce(c.rank, j.rank)) > 1)) WHERE j.id = c.id AND j.state = c.was AND j.epoch = c.epoch AND j.owner IS NOT DISTINCT FROM c.owner;
            made := CASE WHEN FOUND THEN made || c.n::int ELSE made END;
        EXCEPTION WHEN unique_violation THEN
            NULL;  -- another holds the key
        END;
    END LOOP;
    IF limited THEN
        PERFORM {s}.ended_v1(e_id, e_queue, e_task, e_lane, ARRAY(SELECT c_id[m] FROM unnest(made) AS m), now_);
    END IF;
    IF limited AND 3 <= ANY (k_was) THEN
        UPDATE {s}.job SET lane = '' WHERE id = ANY (c_id) AND lane IS NULL AND state < 2
            AND ('task:' || task IN (SELECT l.name FROM {s}.limits l) OR 'each:' || task IN (SELECT l.name FROM {s}.limits l));
    END IF;
    IF limited AND 1 = ANY (k_to) THEN
        INSERT INTO {s}.lane (queue, band, task, lane)
            SELECT DISTINCT j.queue, (j.rank < 0)::int - (j.rank > 0)::int, j.task,
                coalesce(j.lane, '')
            FROM {s}.job j WHERE j.id = ANY (c_id) AND j.state = 1 AND j.lane IS NOT NULL AND EXISTS (SELECT FROM {s}.limits e WHERE e.name = 'each:' || j.task);
    END IF;
    RETURN made;
END
$function$;
CREATE FUNCTION {s}.promote_v1(most int, now_ bigint, floor_ bigint)
RETURNS bigint LANGUAGE plpgsql AS $function$
#variable_conflict use_variable
DECLARE
    in_line_from bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 1000000;
BEGIN
    WITH line AS (
        SELECT j.ctid AS at, j.due, j.id FROM {s}.job j
        WHERE j.state = 0 AND NOT j.aside AND j.due >= floor_ AND j.due <= now_
        ORDER BY j.due, j.id LIMIT most FOR UPDATE SKIP LOCKED),
    apart AS (
        SELECT j.ctid AS at, j.due, j.id FROM {s}.job j
        WHERE j.state = 0 AND j.aside AND j.due <= now_
        ORDER BY j.due, j.id LIMIT most FOR UPDATE SKIP LOCKED),
    promoted AS (
        UPDATE {s}.job j SET state = 1, since = now_, aside = j.due < in_line_from OR abs(j.rank) > 1
        WHERE j.ctid = ANY (ARRAY(
            SELECT b.at FROM (SELECT * FROM line UNION ALL SELECT * FROM apart) AS b ORDER BY b.due, b.id LIMIT most))
        RETURNING j.queue, j.rank, j.task, j.lane)
    INSERT INTO {s}.lane (queue, band, task, lane)
            SELECT DISTINCT p.queue, (p.rank < 0)::int - (p.rank > 0)::int, p.task,
                coalesce(p.lane, '')
            FROM promoted p WHERE p.lane IS NOT NULL AND EXISTS (SELECT FROM {s}.limits e WHERE e.name = 'each:' || p.task);
    RETURN least(
        (SELECT j.due FROM {s}.job j WHERE j.state = 0 AND NOT j.aside AND j.due >= floor_ ORDER BY j.due LIMIT 1),
        (SELECT j.due FROM {s}.job j WHERE j.state = 0 AND j.aside ORDER BY j.due LIMIT 1));
END
$function$;
CREATE FUNCTION {s}.exchange_v1(lazy boolean, c_id uuid[], c_kind int[], c_note bytea[], k_was smallint[], k_epoch int[], k_to smallint[],
    k_since bigint[], k_due bigint[], k_failures int[], k_losses int[], k_until bigint[], k_queue text[],
    k_rank bigint[], k_expires bigint[], k_holds bigint[], k_body bytea[], k_owner text[], singly boolean, now_ bigint,
    w_queue text[], w_band smallint[], w_count int[], w_floor bigint[], w_late_floor bigint[], s_floor bigint,
    most int, promoted int, me text, lease bigint)
RETURNS TABLE (id bytea, task text, body bytea, queue text, priority bigint, due bigint, epoch int, failures int, losses int,
    expires bigint, key text, note bytea, unique_for bigint, holds bigint, lane text, headers bytea, progress bytea, made int[], floors bigint[], late_floors bigint[], scheduled_floor bigint, next_due bigint,
    limited boolean, elsewhere boolean) LANGUAGE plpgsql 
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan
    SET jit = off
 AS $function$
#variable_conflict use_column
DECLARE
    cap bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 2000000;
    wants int := CASE WHEN most > 0 THEN cardinality(w_queue) ELSE 0 END;
    any_paused boolean;
    any_laned boolean;
    aside_due bigint;
    unpaused boolean[];
    open boolean[];
    aside boolean[];
    on_time boolean[];
    late boolean[];
    got int := 0;
    room int;
    share int;
    taken int;
    more int;
BEGIN
    IF lazy THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    IF cardinality(c_id) > 0 THEN
        made := {s}.apply_v1(c_id, c_kind, c_note, k_was, k_epoch, k_to, k_since, k_due, k_failures, k_losses,
            k_until, k_queue, k_rank, k_expires, k_holds, k_body, k_owner, singly, now_);
    END IF;
    SELECT EXISTS (SELECT l.name FROM {s}.limits l), EXISTS (SELECT FROM {s}.paused),
        EXISTS (SELECT FROM {s}.job r WHERE r.state = 1 AND r.lane IS NOT NULL), (SELECT j.due FROM {s}.job j WHERE j.state = 0 AND NOT j.aside AND j.due >= s_floor ORDER BY j.due LIMIT 1), (SELECT j.due FROM {s}.job j WHERE j.state = 0 AND j.aside ORDER BY j.due LIMIT 1)
    INTO limited, any_paused, any_laned, scheduled_floor, aside_due;
    next_due := least(scheduled_floor, aside_due);
    scheduled_floor := least(scheduled_floor, cap);
    floors := w_floor;
    late_floors := w_late_floor;
    elsewhere := false;
    IF any_paused AND wants > 0 THEN
        SELECT array_agg(NOT EXISTS (SELECT FROM {s}.paused p WHERE p.queue = w.queue) ORDER BY w.n) INTO unpaused
        FROM unnest(w_queue) WITH ORDINALITY AS w (queue, n);
        wants := CASE WHEN true = ANY (unpaused) THEN wants ELSE 0 END;
    END IF;
    IF wants > 0 AND next_due <= now_ THEN
        next_due := {s}.promote_v1(promoted, now_, s_floor);
        any_laned := true;  -- perhaps, by now
    END IF;
    IF wants > 0 AND limited THEN
        UPDATE {s}.lane SET again = NULL WHERE ctid = ANY (ARRAY(
            SELECT o.ctid FROM {s}.lane o WHERE o.again IS NOT NULL AND o.again <= now_
            ORDER BY o.again LIMIT 100 FOR UPDATE SKIP LOCKED));
        next_due := least(next_due, nullif(
            (SELECT o.again FROM {s}.lane o WHERE o.again IS NOT NULL ORDER BY o.again LIMIT 1), 4611686018427387904));
    END IF;
    IF wants > 0 AND (limited OR any_laned) THEN
        SELECT coalesce(bool_or(unpaused IS NULL OR unpaused[w.n]), false) INTO elsewhere
        FROM unnest(w_queue, w_band) WITH ORDINALITY AS w (queue, band, n)
        WHERE (SELECT true FROM {s}.limits l WHERE l.name = 'queue:' || w.queue)
            OR (SELECT true FROM {s}.lane o
                WHERE o.again IS NULL AND o.queue = w.queue AND o.band = w.band LIMIT 1)
            OR EXISTS (WITH RECURSIVE found (task) AS (
                (SELECT r.task FROM {s}.job r WHERE r.state = 1 AND r.lane IS NOT NULL AND r.queue = w.queue
                    AND (r.rank > 0)::int - (r.rank < 0)::int = -w.band ORDER BY r.task LIMIT 1)
                UNION ALL
                SELECT (SELECT r.task FROM {s}.job r WHERE r.state = 1 AND r.lane IS NOT NULL AND r.queue = w.queue
                    AND (r.rank > 0)::int - (r.rank < 0)::int = -w.band AND r.task > found.task ORDER BY r.task LIMIT 1)
                FROM found WHERE found.task IS NOT NULL)
                SELECT FROM found WHERE found.task IS NOT NULL AND NOT EXISTS (SELECT FROM {s}.limits e WHERE e.name = 'each:' || found.task));
        -- Then the claim is made in lanes, elsewhere.
        wants := CASE WHEN elsewhere THEN 0 ELSE wants END;
    END IF;
    IF wants > 0 THEN
        SELECT array_agg(least(p.first, cap)), array_agg(least(p.late_first, cap)), array_agg(p.first IS NOT NULL),
            array_agg(p.late_first IS NOT NULL),
            array_agg((p.first IS NOT NULL OR p.late_first IS NOT NULL) AND (unpaused IS NULL OR unpaused[p.n])),
            array_agg(p.apart IS NOT NULL)
        INTO floors, late_floors, on_time, late, open, aside
        -- No EXISTS here and below: its rows may be read all and hashed.
        FROM (
            SELECT w.n,
                (SELECT r.due FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue AND NOT r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int = 0 - 2 * w.band AND r.rank = -w.band AND r.due >= w.floor ORDER BY r.due, r.id LIMIT 1) AS first,
                (SELECT r.due FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue AND NOT r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int = 1 - 2 * w.band AND r.rank = -w.band AND r.due >= w.late_floor ORDER BY r.due, r.id LIMIT 1)
                    AS late_first,
                (SELECT true FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue AND r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int BETWEEN 0 - 2 * w.band AND 1 - 2 * w.band LIMIT 1) AS apart
            FROM unnest(w_queue, w_band, w_floor, w_late_floor)
                WITH ORDINALITY AS w (queue, band, floor, late_floor, n)
            ORDER BY w.n) AS p;  -- sorted once here, not once for each array
        -- Which line they are of is asked only where there are any: a claim that finds none pays for one look.
        IF true = ANY (aside) THEN
            SELECT array_agg(p.aside), array_agg(on_time[p.n] OR p.aside), array_agg(late[p.n] OR p.late_aside),
                array_agg(open[p.n] OR ((p.aside OR p.late_aside) AND (unpaused IS NULL OR unpaused[p.n])))
            INTO aside, on_time, late, open
            FROM (
                SELECT w.n, (SELECT true FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue AND r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int = 0 - 2 * w.band LIMIT 1) IS NOT NULL AS aside,
                    (SELECT true FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w.queue AND r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int = 1 - 2 * w.band LIMIT 1) IS NOT NULL AS late_aside
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
                    -- Jobs of the middle band have one rank: half of the room from each line is enough, and what is
                    -- not locked stays free for other claimers.
                    share := CASE WHEN on_time[w] AND w_band[w] = 0 THEN (room + 1) / 2 ELSE room END;
                    LOOP
                        RETURN QUERY
                        WITH line AS (SELECT r.ctid AS at, r.rank, r.due, r.id FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND NOT r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int = 0 - 2 * w_band[w] AND r.rank = -w_band[w] AND r.due >= w_floor[w] ORDER BY r.due, r.id LIMIT share FOR UPDATE SKIP LOCKED),
                    apart AS (SELECT r.ctid AS at, r.rank, r.due, r.id FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int = 0 - 2 * w_band[w]
                        ORDER BY r.rank, r.due, r.id LIMIT share FOR UPDATE SKIP LOCKED),
                    late_line AS (SELECT r.ctid AS at, r.rank, r.due, r.id FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND NOT r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int = 1 - 2 * w_band[w] AND r.rank = -w_band[w] AND r.due >= w_late_floor[w] ORDER BY r.due, r.id LIMIT share FOR UPDATE SKIP LOCKED),
                    late_apart AS (SELECT r.ctid AS at, r.rank, r.due, r.id FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int = 1 - 2 * w_band[w]
                        ORDER BY r.rank, r.due, r.id LIMIT share FOR UPDATE SKIP LOCKED),
                    both_ AS (
                        SELECT *, false AS late FROM line UNION ALL SELECT *, false FROM apart
                        UNION ALL SELECT *, true FROM late_line UNION ALL SELECT *, true FROM late_apart),
                    placed AS (
                        SELECT *, row_number() OVER (PARTITION BY b.rank, b.late ORDER BY b.due, b.id) AS n
                        FROM both_ b),
                    drawn AS (
                        SELECT *, 1 = sum(CASE WHEN p.n = 1 THEN get_byte(uuid_send(p.id), 15) & 1 END)
                            OVER (PARTITION BY p.rank) AS late_begins
                        FROM placed p)
                    UPDATE {s}.job j SET state = 2, owner = me, epoch = j.epoch + 1, since = now_,
            holds = CASE WHEN j.unique_for < 0 THEN 0 ELSE j.holds END
                    WHERE j.ctid = ANY (ARRAY(
                        SELECT d.at FROM drawn d ORDER BY d.rank, d.n, d.late <> d.late_begins LIMIT room - taken))
                    RETURNING uuid_send(j.id), j.task, j.body, j.queue, -j.rank, j.due, j.epoch, j.failures, j.losses, j.expires,
            j.key, j.note, j.unique_for, j.holds, j.lane, j.headers, j.progress, NULL::int[], NULL::bigint[], NULL::bigint[], NULL::bigint, NULL::bigint, NULL::boolean, NULL::boolean;
                        GET DIAGNOSTICS more = ROW_COUNT;
                        taken := taken + more;
                        EXIT WHEN taken = room OR share = room;
                        share := room;  -- one of the lines is at its end: the other fills
                    END LOOP;
                ELSIF aside[w] THEN
                    RETURN QUERY
                    WITH line AS (SELECT r.ctid AS at, r.rank, r.due, r.id FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND NOT r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int = 0 - 2 * w_band[w] AND r.rank = -w_band[w] AND r.due >= w_floor[w] ORDER BY r.due, r.id LIMIT room FOR UPDATE SKIP LOCKED),
                    apart AS (SELECT r.ctid AS at, r.rank, r.due, r.id FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int = 0 - 2 * w_band[w]
                        ORDER BY r.rank, r.due, r.id LIMIT room FOR UPDATE SKIP LOCKED)
                    UPDATE {s}.job j SET state = 2, owner = me, epoch = j.epoch + 1, since = now_,
            holds = CASE WHEN j.unique_for < 0 THEN 0 ELSE j.holds END
                    WHERE j.ctid = ANY (ARRAY(
                        SELECT b.at FROM (SELECT * FROM line UNION ALL SELECT * FROM apart) AS b
                        ORDER BY b.rank, b.due, b.id LIMIT room))
                    RETURNING uuid_send(j.id), j.task, j.body, j.queue, -j.rank, j.due, j.epoch, j.failures, j.losses, j.expires,
            j.key, j.note, j.unique_for, j.holds, j.lane, j.headers, j.progress, NULL::int[], NULL::bigint[], NULL::bigint[], NULL::bigint, NULL::bigint, NULL::boolean, NULL::boolean;
                    GET DIAGNOSTICS taken = ROW_COUNT;
                ELSE
                    RETURN QUERY
                    UPDATE {s}.job j SET state = 2, owner = me, epoch = j.epoch + 1, since = now_,
            holds = CASE WHEN j.unique_for < 0 THEN 0 ELSE j.holds END
                    WHERE j.ctid = ANY (ARRAY(
                        SELECT r.ctid FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND NOT r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int = 0 - 2 * w_band[w] AND r.rank = -w_band[w] AND r.due >= w_floor[w] ORDER BY r.due, r.id LIMIT room FOR UPDATE SKIP LOCKED))
                    RETURNING uuid_send(j.id), j.task, j.body, j.queue, -j.rank, j.due, j.epoch, j.failures, j.losses, j.expires,
            j.key, j.note, j.unique_for, j.holds, j.lane, j.headers, j.progress, NULL::int[], NULL::bigint[], NULL::bigint[], NULL::bigint, NULL::bigint, NULL::boolean, NULL::boolean;
                    GET DIAGNOSTICS taken = ROW_COUNT;
                END IF;
                got := got + taken;
                -- Fewer than asked for: this line is at its end, no use in asking again.
                open[w] := taken = room;
            END;
        END LOOP;
        IF got > 0 AND NOT EXISTS (
                SELECT FROM {s}.owner o WHERE o.name = me AND o.until >= now_ + lease / 2) THEN
            INSERT INTO {s}.owner AS o (name, until) VALUES (me, now_ + lease)
            ON CONFLICT (name) DO UPDATE SET until = excluded.until WHERE o.until < now_ + lease / 2;
        END IF;
    END IF;
    id := NULL;
    RETURN NEXT;
END
$function$;
CREATE FUNCTION {s}.queues_v1(w_queue text[], w_band smallint[], w_floor bigint[], w_late_floor bigint[])
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
        IF NOT w_queue[w] = ANY (ready) AND (EXISTS (SELECT FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND NOT r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int = 0 - 2 * w_band[w] AND r.rank = -w_band[w] AND r.due >= w_floor[w]) OR EXISTS (SELECT FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND NOT r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int = 1 - 2 * w_band[w] AND r.rank = -w_band[w] AND r.due >= w_late_floor[w])
                OR EXISTS (SELECT FROM {s}.job r WHERE r.state = 1 AND r.lane IS NULL AND r.queue = w_queue[w] AND r.aside AND ((rank > 0)::int - (rank < 0)::int) * 2 + (since > due)::int BETWEEN 0 - 2 * w_band[w] AND 1 - 2 * w_band[w])) THEN
            ready := ready || w_queue[w];
        END IF;
    END LOOP;
    -- In the gaps between the known ones: what is gone of those is not walked over.
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
$function$;
