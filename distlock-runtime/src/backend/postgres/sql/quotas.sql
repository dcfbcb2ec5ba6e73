-- Quotas: what a scope has in all, and its places.
create table if not exists distlock.record_scope (
  namespace text collate "C" not null,
  scope bytea not null,
  places bigint not null,
  bytes bigint not null,
  primary key (namespace, scope)
);
create table if not exists distlock.record_place (
  namespace text collate "C" not null,
  scope bytea not null,
  key bytea not null,
  bytes bigint not null,
  until timestamptz not null,
  primary key (namespace, scope, key)
);
create index if not exists record_place_until on distlock.record_place (namespace, scope, until);
create index if not exists record_place_sweep on distlock.record_place (until);

-- Takes the scope's row for the rest of the transaction.
create or replace function distlock.record_scope_enter(p_namespace text, p_scope bytea) returns distlock.record_scope
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  s distlock.record_scope;
begin
  loop
    select t.* into s from distlock.record_scope t where t.namespace = p_namespace and t.scope = p_scope for update;
    exit when s.scope is not null;
    -- A sweep may take it away again before it is ours.
    insert into distlock.record_scope (namespace, scope, places, bytes) values (p_namespace, p_scope, 0, 0) on conflict do nothing;
  end loop;
  return s;
end $$;

-- Gives places of a scope back. One that has none left is forgotten.
create or replace function distlock.record_give_back(p_namespace text, p_scope bytea, p_keys bytea[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
begin
  perform distlock.record_scope_enter(p_namespace, p_scope);
  with dropped as (
    delete from distlock.record_place p where p.namespace = p_namespace and p.scope = p_scope and p.key = any (p_keys) returning p.bytes
  )
  update distlock.record_scope t
    set places = greatest(0, t.places - (select count(*) from dropped)),
        bytes = greatest(0, t.bytes - (select coalesce(sum(d.bytes), 0) from dropped d))
    where t.namespace = p_namespace and t.scope = p_scope;
  delete from distlock.record_scope t where t.namespace = p_namespace and t.scope = p_scope and t.places = 0;
end $$;

-- Gives back the places that have ended, some at a time.
create or replace function distlock.record_end_places(p_namespace text, p_scope bytea, p_limit bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_ended bytea[];
begin
  select array_agg(o.key) into v_ended from (
    select p.key from distlock.record_place p
      where p.namespace = p_namespace and p.scope = p_scope and p.until <= clock_timestamp() limit p_limit
  ) o;
  if v_ended is not null then
    perform distlock.record_give_back(p_namespace, p_scope, v_ended);
  end if;
end $$;

-- Whether the record has its place, now or from before; if there is none, what the scope has.
create or replace function distlock.record_reserve(
  p_namespace text, p_scope bytea, p_key bytea, p_hold bigint, p_places bigint, p_bytes bigint,
  out granted boolean, out places bigint, out bytes bigint
) language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
#variable_conflict use_column
declare
  s distlock.record_scope;
begin
  granted := exists (select from distlock.record_place p
    where p.namespace = p_namespace and p.scope = p_scope and p.key = p_key and p.until > clock_timestamp());
  if granted then return; end if;
  perform distlock.record_scope_enter(p_namespace, p_scope);
  perform distlock.record_end_places(p_namespace, p_scope, 1000);
  granted := exists (select from distlock.record_place p where p.namespace = p_namespace and p.scope = p_scope and p.key = p_key);
  if granted then return; end if;
  s := distlock.record_scope_enter(p_namespace, p_scope);
  if s.places >= p_places or s.bytes >= p_bytes then
    places := s.places;
    bytes := s.bytes;
    return;
  end if;
  granted := true;
  insert into distlock.record_place (namespace, scope, key, bytes, until)
    values (p_namespace, p_scope, p_key, 0, clock_timestamp() + p_hold * interval '1 millisecond');
  update distlock.record_scope t set places = t.places + 1 where t.namespace = p_namespace and t.scope = p_scope;
end $$;

-- Says what a place is worth, or gives it back; false if the record has none.
create or replace function distlock.record_charge(p_namespace text, p_scope bytea, p_key bytea, p_bytes bigint, p_retain bigint)
returns boolean language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_before bigint;
begin
  if not exists (select from distlock.record_place p where p.namespace = p_namespace and p.scope = p_scope and p.key = p_key) then
    return false;
  end if;
  perform distlock.record_scope_enter(p_namespace, p_scope);
  select p.bytes into v_before from distlock.record_place p where p.namespace = p_namespace and p.scope = p_scope and p.key = p_key;
  if not found then return false; end if;
  if p_retain = 0 then
    perform distlock.record_give_back(p_namespace, p_scope, array[p_key]);
    return true;
  end if;
  update distlock.record_place p set bytes = p_bytes, until = clock_timestamp() + p_retain * interval '1 millisecond'
    where p.namespace = p_namespace and p.scope = p_scope and p.key = p_key;
  update distlock.record_scope t set bytes = greatest(0, t.bytes - v_before + p_bytes)
    where t.namespace = p_namespace and t.scope = p_scope;
  return true;
end $$;

-- Takes away what is over, at most so many rows of a kind and not more than once in half a minute, whoever asks, but for who goes
-- on because there was more. Waits for nobody.
create or replace function distlock.purge_records(p_most bigint, p_more boolean) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_now timestamptz := clock_timestamp();
  v_count bigint;
  v_more bigint;
  v_scope record;
begin
  insert into distlock.upkeep (task, done_at) values ('records', '-infinity') on conflict do nothing;
  perform from distlock.upkeep u
  where u.task = 'records' and (p_more or u.done_at not between v_now - interval '30 seconds' and v_now) for update skip locked;
  if not found then
    return 0;
  end if;
  update distlock.upkeep u set done_at = v_now where u.task = 'records';
  -- One that was renewed for longer than its retention is looked at again when its time has come.
  update distlock.record t set sweep_at = t.kept_until where t.ctid = any (array(
    select r.ctid from distlock.record r where r.sweep_at <= v_now and r.kept_until > v_now
    order by r.sweep_at limit p_most for update skip locked));
  delete from distlock.record where ctid = any (array(
    select r.ctid from distlock.record r where r.sweep_at <= v_now and r.kept_until <= v_now
    order by r.sweep_at limit p_most for update skip locked));
  get diagnostics v_count = row_count;
  for v_scope in
    select distinct o.namespace, o.scope from (
      select p.namespace, p.scope from distlock.record_place p where p.until <= v_now order by p.until limit p_most) o
  loop
    -- Who is at the scope ends its places too.
    perform from distlock.record_scope t
    where t.namespace = v_scope.namespace and t.scope = v_scope.scope for update skip locked;
    if found then
      perform distlock.record_end_places(v_scope.namespace, v_scope.scope, p_most);
      delete from distlock.record_scope t
      where t.namespace = v_scope.namespace and t.scope = v_scope.scope and t.places = 0;
      get diagnostics v_more = row_count;
      v_count := v_count + v_more;
    end if;
  end loop;
  return v_count;
end $$;
