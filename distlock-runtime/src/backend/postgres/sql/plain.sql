-- The plain way: an exclusive lock that nobody else wants is taken by one change of a row and given back by another. Whatever needs more
-- gathers the lock into the other tables, where the functions of the other files do all the work.
--
-- A row that is being changed makes all others wait, and these look at it as it is after that; so nothing is decided by what a
-- statement saw before. It needs no turn. The functions of this way have no settings of their own, which take as long as the work:
-- their operators are named in full.

-- The token, or nothing: then it is no plain matter. It is drawn when the row is ours, so that tokens grow with each holder.
create or replace function distlock.take(p_namespace text, p_name text, p_owner text, p_label text, p_ttl bigint)
returns bigint language plpgsql as $$
declare
  v_token bigint;
  v_until timestamptz := pg_catalog.clock_timestamp() operator(pg_catalog.+) pg_catalog.make_interval(
    secs => p_ttl::double precision operator(pg_catalog./) 1000::double precision);
begin
  update distlock.plain p
  set owner = p_owner, label = p_label,
    expires_at = case when p.owner operator(pg_catalog.=) p_owner then greatest(p.expires_at, v_until) else v_until end
  where p.namespace operator(pg_catalog.=) p_namespace and p.name operator(pg_catalog.=) p_name and not p.elsewhere
    and (p.owner operator(pg_catalog.=) '' or p.expires_at operator(pg_catalog.<=) pg_catalog.clock_timestamp()
      or p.owner operator(pg_catalog.=) p_owner)
    and not exists (select from distlock.tombstone t where t.owner operator(pg_catalog.=) p_owner)
  returning pg_catalog.nextval('distlock.token') into v_token;
  if v_token is null then
    insert into distlock.plain (namespace, name, owner, label, expires_at, elsewhere, elsewhere_until)
    select p_namespace, p_name, p_owner, p_label, v_until, false, '-infinity'
    where not exists (select from distlock.tombstone t where t.owner operator(pg_catalog.=) p_owner)
    on conflict (namespace, name) do nothing
    returning pg_catalog.nextval('distlock.token') into v_token;
  end if;
  return v_token;
end $$;

-- Whether it was given back so.
create or replace function distlock.give(p_namespace text, p_name text, p_owner text)
returns boolean language plpgsql as $$
declare
  v_now timestamptz := pg_catalog.clock_timestamp();
begin
  update distlock.plain p set owner = '', expires_at = v_now
  where p.namespace operator(pg_catalog.=) p_namespace and p.name operator(pg_catalog.=) p_name and not p.elsewhere
    and p.owner operator(pg_catalog.=) p_owner and p.expires_at operator(pg_catalog.>) v_now;
  return found;
end $$;

-- Whether the session's isolation fits. A statement that its client has given up mustn't wait for ever.
create or replace function distlock.plainly() returns boolean language plpgsql as $$
declare
  v_before text;
begin
  if pg_catalog.current_setting('lock_timeout') operator(pg_catalog.=) '0' then
    v_before := pg_catalog.set_config('lock_timeout', '5s', true);
  end if;
  return pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed';
end $$;

-- As "acquire", for one exclusive hold.
create or replace function distlock.acquire_plain(
  p_namespace text, p_name text, p_owner text, p_label text, p_ttl bigint, p_fair boolean, p_queue boolean, p_claim bigint,
  p_channel text, p_live bigint, p_longest bigint,
  out outcome text, out token bigint, out holder text, out holder_label text, out remaining bigint
) language plpgsql as $$
declare
  v_until timestamptz;
begin
  -- The same as below without a call, for what happens most.
  if pg_catalog.current_setting('lock_timeout') operator(pg_catalog.<>) '0'
    and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed' then
    v_until := pg_catalog.clock_timestamp() operator(pg_catalog.+) pg_catalog.make_interval(
      secs => p_ttl::double precision operator(pg_catalog./) 1000::double precision);
    update distlock.plain p set owner = p_owner, label = p_label, expires_at = v_until
    where p.namespace operator(pg_catalog.=) p_namespace and p.name operator(pg_catalog.=) p_name and not p.elsewhere
      and (p.owner operator(pg_catalog.=) '' or p.expires_at operator(pg_catalog.<=) pg_catalog.clock_timestamp())
      and not exists (select from distlock.tombstone t where t.owner operator(pg_catalog.=) p_owner)
    returning pg_catalog.nextval('distlock.token') into token;
  end if;
  if token is null and distlock.plainly() then
    token := distlock.take(p_namespace, p_name, p_owner, p_label, p_ttl);
  end if;
  if token is not null then
    outcome := 'granted';
    return;
  end if;
  select a.outcome, a.token, a.holder, a.holder_label, a.remaining into outcome, token, holder, holder_label, remaining
  from distlock.acquire(
    p_namespace, p_name, p_owner, p_label, 'excl', 1, 1, null, p_ttl, p_fair, p_queue, p_claim, p_channel, p_live, p_longest
  ) a;
end $$;

-- As "release".
create or replace function distlock.release_plain(p_namespace text, p_name text, p_owner text)
returns boolean language plpgsql as $$
declare
  v_now timestamptz := pg_catalog.clock_timestamp();
begin
  if (pg_catalog.current_setting('lock_timeout') operator(pg_catalog.<>) '0'
      and pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.=) 'read committed')
    or distlock.plainly() then
    update distlock.plain p set owner = '', expires_at = v_now
    where p.namespace operator(pg_catalog.=) p_namespace and p.name operator(pg_catalog.=) p_name and not p.elsewhere
      and p.owner operator(pg_catalog.=) p_owner and p.expires_at operator(pg_catalog.>) v_now;
    if found then
      return true;
    end if;
  end if;
  return distlock.release(p_namespace, p_name, p_owner, null);
end $$;

-- Several attempts and, without a ttl, releases: each key once and in order, so that nobody waits in a circle. An attempt gives the
-- token, a release 1. Without a value it is no plain matter, and nothing was done.
create or replace function distlock.several(
  p_namespaces text[], p_names text[], p_owners text[], p_ttls bigint[], p_label text
) returns bigint[] language plpgsql as $$
declare
  v_done bigint[] := pg_catalog.array_fill(null::bigint, array[pg_catalog.cardinality(p_names)]);
begin
  if distlock.plainly() then
    for i in 1 .. pg_catalog.cardinality(p_names) loop
      if p_ttls[i] is not null then
        v_done[i] := distlock.take(p_namespaces[i], p_names[i], p_owners[i], p_label, p_ttls[i]);
      elsif distlock.give(p_namespaces[i], p_names[i], p_owners[i]) then
        v_done[i] := 1;
      end if;
    end loop;
  end if;
  return v_done;
end $$;

-- From here on this transaction is the only one that works on the key, and all that there is of it stands in the other tables.
create or replace function distlock.gather(p_namespace text, p_name text) returns timestamptz
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
begin
  perform distlock.enter(p_namespace, p_name);
  return distlock.gather_in_turn(p_namespace, p_name);
end $$;

create or replace function distlock.gather_in_turn(p_namespace text, p_name text) returns timestamptz
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_plain distlock.plain;
  v_now timestamptz;
begin
  loop
    -- Waits for what is under way.
    select * into v_plain from distlock.plain p where p.namespace = p_namespace and p.name = p_name for update;
    exit when found;
    insert into distlock.plain (namespace, name, owner, label, expires_at, elsewhere, elsewhere_until)
    values (p_namespace, p_name, '', '', clock_timestamp(), true, '-infinity')
    on conflict do nothing;
    if found then
      return clock_timestamp();
    end if;
  end loop;
  v_now := clock_timestamp();
  if not v_plain.elsewhere then
    if v_plain.owner <> '' and v_plain.expires_at > v_now then
      insert into distlock.lease (namespace, name, owner, label, kind, capacity, weight, party, token, expires_at)
      values (p_namespace, p_name, v_plain.owner, v_plain.label, 'excl', 1, 1, null, 0, v_plain.expires_at);
    end if;
    update distlock.plain p set owner = '', label = '', expires_at = v_now, elsewhere = true
    where p.namespace = p_namespace and p.name = p_name;
  end if;
  return v_now;
end $$;

-- The end of "gather", if nothing is left.
create or replace function distlock.scatter(p_namespace text, p_name text, p_now timestamptz)
returns void language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
begin
  update distlock.plain p set elsewhere = false, expires_at = p_now
  where p.namespace = p_namespace and p.name = p_name and p.elsewhere and p.elsewhere_until <= p_now
    and not exists (select from distlock.lease l where l.namespace = p_namespace and l.name = p_name)
    and not exists (select from distlock.waiter w where w.namespace = p_namespace and w.name = p_name)
    and not exists (select from distlock.latch c where c.namespace = p_namespace and c.name = p_name);
end $$;
