-- Functions of SQLite that Postgres lacks. For text that is not JSON, as some facts of the file are, those of JSON return NULL.
CREATE FUNCTION json_of(said text) RETURNS json LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  IF said LIKE '{%' OR said LIKE '[%' THEN RETURN said::json; END IF;
  RETURN NULL;
EXCEPTION WHEN invalid_text_representation THEN RETURN NULL;
END $$;
CREATE FUNCTION json_extract(said text, path text) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE keys text[] := string_to_array(substr(path, 3), '.');
BEGIN
  RETURN json_of(said) #>> keys;
EXCEPTION WHEN untranslatable_character THEN
  -- Postgres holds no character of number 0, nor halves of a pair.
  RETURN json_of(regexp_replace(said, '\\u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '?', 'g')) #>> keys;
END $$;
CREATE FUNCTION json_remove(said text, path text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (json_of(said)::jsonb #- string_to_array(substr(path, 3), '.'))::text $$;
CREATE FUNCTION json_array_length(said text) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT json_array_length(json_of(said))::bigint $$;
CREATE FUNCTION hex(bytes bytea) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT upper(encode(bytes, 'hex')) $$;
