-- Advisory locks of sessions. The server knows nothing of a lock but that it is held; what people want to know of it stands here, and
-- counts only while it is held.

create unlogged table if not exists distlock.holder (
  namespace text collate "C" not null,
  name text collate "C" not null,
  key bigint not null,
  owner text not null,
  label text not null,
  pid integer not null,
  expires_at timestamptz not null,
  primary key (namespace, name)
) with (fillfactor = 70);

-- Whether this statement runs in the session that its client thinks it has: behind a pooler it may be another's.
create or replace function distlock.is_session(p_session text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select coalesce(current_setting('distlock_session.id', true), '') = p_session
$$;

-- Whether somebody holds the advisory lock.
create or replace function distlock.is_held(p_key bigint) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $$
  select exists (
    select from pg_catalog.pg_locks l
    where l.locktype = 'advisory' and l.granted and l.objsubid = 1
      and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
      and l.classid = ((p_key >> 32) & 4294967295)::oid and l.objid = (p_key & 4294967295)::oid
  )
$$;

-- "granted" with a token, "busy" with what is known of the holder, or "session". The caller knows that this session doesn't hold it:
-- the server would give it once more. Of what happens all the time the names are in full: see the plain locks.
create or replace function distlock.advisory_acquire(
  p_session text, p_namespace text, p_name text, p_key bigint, p_owner text, p_label text, p_ttl bigint,
  out outcome text, out token bigint, out holder text, out holder_label text, out remaining bigint
) language plpgsql as $$
declare
  v_until timestamptz := pg_catalog.clock_timestamp() operator(pg_catalog.+) pg_catalog.make_interval(
    secs => p_ttl::double precision operator(pg_catalog./) 1000::double precision);
  v_place pg_catalog.pg_lsn;
begin
  if coalesce(pg_catalog.current_setting('distlock_session.id', true), '') operator(pg_catalog.<>) p_session then
    outcome := 'session';
    return;
  end if;
  if pg_catalog.pg_try_advisory_lock(p_key) then
    outcome := 'granted';
    token := pg_catalog.nextval('distlock.token');
    -- An unlogged row alone is told before anything is on the disk: a crash would then give out the token of a draw that nobody synced
    -- yet once more. With this in the log, the commit waits for all that was written before, and for synchronous standbys.
    v_place := pg_catalog.pg_logical_emit_message(true, 'distlock'::text, ''::text);
    update distlock.holder h
    set key = p_key, owner = p_owner, label = p_label, pid = pg_catalog.pg_backend_pid(), expires_at = v_until
    where h.namespace operator(pg_catalog.=) p_namespace and h.name operator(pg_catalog.=) p_name;
    if not found then
      insert into distlock.holder (namespace, name, key, owner, label, pid, expires_at)
      values (p_namespace, p_name, p_key, p_owner, p_label, pg_catalog.pg_backend_pid(), v_until)
      on conflict (namespace, name) do update set key = excluded.key, owner = excluded.owner, label = excluded.label,
        pid = excluded.pid, expires_at = excluded.expires_at;
    end if;
    return;
  end if;
  outcome := 'busy';
  select s.owner, s.label, s.remaining into holder, holder_label, remaining
  from distlock.advisory_state(p_namespace, array[p_name], array[p_key]) s;
end $$;

-- Says that these locks are held on; false if this isn't the session that holds them.
create or replace function distlock.advisory_renew(
  p_session text, p_namespaces text[], p_names text[], p_owners text[], p_ttls bigint[]
) returns boolean language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if not distlock.is_session(p_session) then
    return false;
  end if;
  update distlock.holder h
  set expires_at = greatest(h.expires_at, clock_timestamp() + k.ttl * interval '1 millisecond')
  from unnest(p_namespaces, p_names, p_owners, p_ttls) as k(namespace, name, owner, ttl)
  where h.namespace = k.namespace and h.name = k.name and h.owner = k.owner and h.pid = pg_backend_pid();
  return true;
end $$;

-- Keeps a lock under another owner's name, for so long.
create or replace function distlock.advisory_keep(
  p_session text, p_namespace text, p_name text, p_owner text, p_keep bigint
) returns boolean language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  update distlock.holder h
  set owner = reverse(p_owner), expires_at = clock_timestamp() + p_keep * interval '1 millisecond'
  where h.namespace = p_namespace and h.name = p_name and h.owner = p_owner and h.pid = pg_backend_pid();
  return distlock.is_session(p_session);
end $$;

-- Gives a lock back. False: it isn't this session that held it.
create or replace function distlock.advisory_release(p_session text, p_namespace text, p_name text, p_key bigint)
returns boolean language plpgsql as $$
begin
  if coalesce(pg_catalog.current_setting('distlock_session.id', true), '') operator(pg_catalog.<>) p_session then
    return false;
  end if;
  -- First, while nobody else can have written it. The next holder finds the row.
  update distlock.holder h set owner = '', label = '', expires_at = pg_catalog.clock_timestamp()
  where h.namespace operator(pg_catalog.=) p_namespace and h.name operator(pg_catalog.=) p_name
    and h.pid operator(pg_catalog.=) pg_catalog.pg_backend_pid();
  return pg_catalog.pg_advisory_unlock(p_key);
end $$;

-- What is known of some locks.
create or replace function distlock.advisory_state(p_namespace text, p_names text[], p_keys bigint[])
returns table (name text, held boolean, owner text, label text, remaining bigint, pid integer) language sql volatile set search_path = pg_catalog, pg_temp as $$
  select k.name, distlock.is_held(k.key), h.owner, h.label,
    greatest(0, ceil(extract(epoch from h.expires_at - clock_timestamp()) * 1000))::bigint, h.pid
  from unnest(p_names, p_keys) with ordinality as k(name, key, place)
  left join distlock.holder h on h.namespace = p_namespace and h.name = k.name and h.owner <> ''
  order by k.place
$$;
