-- label_v1: adds the labels of a new job to their index. A trigger of job; for jobs whose headers have a label.
--
-- Arguments  none
-- Answer     NULL
-- Cost       one row for each label
CREATE OR REPLACE FUNCTION {s}.label_v1() RETURNS trigger LANGUAGE plpgsql AS $function$
BEGIN
    INSERT INTO {s}.label (name, value, job)
    SELECT substr(h.key, {after_label}), h.value #>> '{}', NEW.id
    FROM jsonb_each(convert_from(NEW.headers, 'UTF8')::jsonb) AS h
    WHERE starts_with(h.key, '{label}') AND jsonb_typeof(h.value) = 'string'
        AND octet_length(h.key) <= {longest_key} AND octet_length(h.value #>> '{}') <= {longest_value}
    LIMIT {most_indexed}
    ON CONFLICT DO NOTHING;
    RETURN NULL;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;  -- another program wrote these headers, and they are no JSON
END
$function$
