-- The schema, and what all rooms of it share. "distlock." stands for the schema: another one is put in its place.
--
-- Every function has a search_path of its own, so that what others make in the schemas that a role looks through isn't called. Those that
-- wait for others have a lock_timeout, but for those in an application's transaction: a statement that its client has given up goes on
-- waiting, and each takes a connection.

do $$
begin
  -- "if not exists" would ask for the right to create one also if it is there.
  if pg_catalog.to_regnamespace('distlock') is null then
    create schema distlock;
  end if;
end $$;

-- Which migrations were run. "oldest": the oldest migration that a program may know that works with these tables.
create table if not exists distlock.migration (
  version integer primary key,
  oldest integer not null,
  applied_at timestamptz not null default clock_timestamp()
);

-- When rows that are over were last looked for.
create table if not exists distlock.upkeep (
  task text primary key,
  done_at timestamptz not null
);

-- Fencing tokens, drawn in blocks of 1024. It begins at the time, so that one that is made anew goes on above the tokens of before.
do $$
begin
  if pg_catalog.to_regclass('distlock.token') is null then
    create sequence distlock.token as bigint increment by 1024 cache 1;
    perform pg_catalog.setval(
      'distlock.token'::regclass, (extract(epoch from pg_catalog.clock_timestamp()) * 1000)::bigint * 1024::bigint, true
    );
  end if;
end $$;

-- From here on this transaction is the only one that works on the key.
create or replace function distlock.enter(p_namespace text, p_name text) returns timestamptz
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
begin
  -- With an older snapshot it would not see what the one before it did.
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception using errcode = 'DL001',
      message = 'locks need transactions that are "read committed", not "' || current_setting('transaction_isolation') || '"';
  end if;
  perform pg_advisory_xact_lock(hashtextextended(p_name, hashtext(p_namespace)));
  return clock_timestamp();
end $$;

-- The same, where an application's transaction may have the turn for as long as it likes: whoever has time asks again, and others that
-- use the connection aren't held up for long.
create or replace function distlock.enter_soon(p_namespace text, p_name text) returns timestamptz
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '250ms' as $$
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    return distlock.enter(p_namespace, p_name);
  end if;
  perform pg_advisory_xact_lock(hashtextextended(p_name, hashtext(p_namespace)));
  return clock_timestamp();
end $$;
