-- Idempotency records: one row a key, each transition one call of a function, judged by clock_timestamp().
-- state: i in flight, c completed, t tombstone, u unknown. A row after kept_until is as good as none.
create table if not exists distlock.record (
  namespace text collate "C" not null,
  key bytea not null,
  state "char" not null,
  -- '' once somebody else has settled it
  owner text collate "C" not null,
  fence bigint not null,
  fingerprint_version integer not null,
  fingerprint bytea not null,
  taken_over boolean not null,
  lease_until timestamptz not null,
  kept_until timestamptz not null,
  -- when a sweep looks at it: never later than kept_until, and not moved by renewals, which an index would make slower
  sweep_at timestamptz not null,
  -- milliseconds that one in flight is kept for after its lease
  retain bigint not null,
  scope bytea,
  note text not null,
  -- channels of those who wait for its end
  watchers text[] not null default '{}',
  -- the response, or a tombstone's reason
  result bytea not null default '',
  primary key (namespace, key)
) with (fillfactor = 85);
create index if not exists record_sweep on distlock.record (sweep_at);
create index if not exists record_by_scope on distlock.record (namespace, scope, key) where scope is not null;

-- The name under which the claims of a key take turns: see distlock.enter.
create or replace function distlock.record_turn(p_key bytea) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select 'record ' || encode(p_key, 'hex')
$$;

-- Tells those who wait; nothing depends on it.
create or replace function distlock.record_tell(watchers text[], p_key bytea) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  select pg_notify(channel, 'r' || encode(p_key, 'hex')) from unnest(watchers) as channel
$$;

-- Milliseconds that the lease of one in flight still runs, or the length of the result.
create or replace function distlock.record_rest(r distlock.record, v_now timestamptz) returns bigint
language sql set search_path = pg_catalog, pg_temp as $$
  select case (r).state when 'i' then greatest(0, ceil(extract(epoch from (r).lease_until - v_now) * 1000))::bigint
    else octet_length((r).result)::bigint end
$$;

-- How a record is shown.
create or replace function distlock.record_shown(
  r distlock.record, out state text, out version integer, out fingerprint bytea, out rest bigint, out result bytea, out note text
) language sql set search_path = pg_catalog, pg_temp as $$
  select (r).state::text, (r).fingerprint_version, (r).fingerprint, distlock.record_rest(r, clock_timestamp()), (r).result, (r).note
$$;

-- outcome: 1 claimed | 0 there is a record | -1 withdrawn before.
-- Repeat by the same owner: goes on under the same fence. A lapsed one is taken over only by the same fingerprint.
create or replace function distlock.record_claim(
  p_namespace text, p_key bytea, p_owner text, p_version integer, p_fingerprint bytea, p_lease bigint, p_takeover boolean,
  p_retain bigint, p_scope bytea, p_note text,
  out outcome integer, out fence bigint, out taken_over boolean,
  out state text, out version integer, out fingerprint bytea, out rest bigint, out result bytea, out note text
) language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
#variable_conflict use_column
declare
  r distlock.record;
  v_now timestamptz;
  v_until timestamptz;
begin
  taken_over := false;
  -- Without taking turns: a repeat of what is finished or under way writes nothing.
  select t.* into r from distlock.record t where t.namespace = p_namespace and t.key = p_key;
  v_now := clock_timestamp();
  if r.kept_until > v_now and r.owner <> p_owner and (r.state <> 'i' or r.lease_until > v_now) then
    outcome := 0;
    select s.* into state, version, fingerprint, rest, result, note from distlock.record_shown(r) s;
    return;
  end if;

  perform distlock.enter_soon(p_namespace, distlock.record_turn(p_key));
  if exists (select from distlock.tombstone w where w.owner = p_owner and w.expires_at > clock_timestamp()) then
    outcome := -1;
    return;
  end if;
  select t.* into r from distlock.record t where t.namespace = p_namespace and t.key = p_key for update;
  v_now := clock_timestamp();
  v_until := v_now + p_lease * interval '1 millisecond';
  if r.kept_until > v_now then
    if r.state = 'i' and r.owner = p_owner then
      update distlock.record t
        set lease_until = greatest(t.lease_until, v_until),
            kept_until = greatest(t.kept_until, v_until + p_retain * interval '1 millisecond')
        where t.namespace = p_namespace and t.key = p_key;
      outcome := 1;
      fence := r.fence;
      taken_over := r.taken_over;
      return;
    end if;
    if r.state = 'i' and r.lease_until <= v_now and not p_takeover then
      r.state := 'u';
      r.kept_until := v_now + p_retain * interval '1 millisecond';
      update distlock.record t set state = 'u', kept_until = r.kept_until, sweep_at = r.kept_until, watchers = '{}'
        where t.namespace = p_namespace and t.key = p_key;
      perform distlock.record_tell(r.watchers, p_key);
    end if;
    taken_over := r.state = 'i' and r.lease_until <= v_now
      and r.fingerprint = p_fingerprint and r.fingerprint_version = p_version;
    if not taken_over then
      outcome := 0;
      select s.* into state, version, fingerprint, rest, result, note from distlock.record_shown(r) s;
      return;
    end if;
  end if;

  outcome := 1;
  fence := nextval('distlock.token');
  insert into distlock.record as t
    (namespace, key, state, owner, fence, fingerprint_version, fingerprint, taken_over, lease_until, kept_until, sweep_at, retain,
     scope, note)
    values (p_namespace, p_key, 'i', p_owner, fence, p_version, p_fingerprint, taken_over, v_until,
      v_until + p_retain * interval '1 millisecond', v_until + p_retain * interval '1 millisecond', p_retain, p_scope, p_note)
    on conflict (namespace, key) do update set
      state = excluded.state, owner = excluded.owner, fence = excluded.fence, fingerprint_version = excluded.fingerprint_version,
      fingerprint = excluded.fingerprint, taken_over = excluded.taken_over, lease_until = excluded.lease_until,
      kept_until = excluded.kept_until, sweep_at = excluded.sweep_at, retain = excluded.retain, scope = excluded.scope,
      note = excluded.note, result = excluded.result;
end $$;

-- Forgets a claim whose outcome nobody saw and whose work was never begun; one that arrives later is harmless.
create or replace function distlock.record_withdraw(p_namespace text, p_key bytea, p_owner text, p_late bigint)
returns boolean language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_told text[];
begin
  perform distlock.enter(p_namespace, distlock.record_turn(p_key));
  insert into distlock.tombstone (owner, expires_at) values (p_owner, clock_timestamp() + p_late * interval '1 millisecond')
    on conflict (owner) do update set expires_at = greatest(tombstone.expires_at, excluded.expires_at);
  delete from distlock.record t
    where t.namespace = p_namespace and t.key = p_key and t.owner = p_owner and t.state = 'i' returning t.watchers into v_told;
  if found then
    perform distlock.record_tell(v_told, p_key);
    return true;
  end if;
  return false;
end $$;

-- Gives the claims that are held, with their full lease. Repeat: the same.
create or replace function distlock.record_renew(
  p_namespace text, p_keys bytea[], p_owners text[], p_fences bigint[], p_leases bigint[]
) returns table (key bytea, owner text, fence bigint) language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
#variable_conflict use_column
begin
  return query
    update distlock.record t
      set lease_until = greatest(t.lease_until, clock_timestamp() + l.lease * interval '1 millisecond'),
          kept_until = greatest(t.kept_until, clock_timestamp() + (l.lease + t.retain) * interval '1 millisecond')
      from unnest(p_keys, p_owners, p_fences, p_leases) as l (key, owner, fence, lease)
      where t.namespace = p_namespace and t.key = l.key and t.owner = l.owner and t.fence = l.fence
        and t.state = 'i' and t.lease_until > clock_timestamp()
      returning t.key, t.owner, t.fence;
end $$;

-- New state c, t, u, or r to forget. True: settled so, now or by an earlier try. False: not this claim's record any more.
create or replace function distlock.record_settle(
  p_namespace text, p_key bytea, p_owner text, p_fence bigint, p_state text, p_retain bigint, p_result bytea
) returns boolean language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
#variable_conflict use_column
declare
  r distlock.record;
  v_now timestamptz;
begin
  select t.* into r from distlock.record t where t.namespace = p_namespace and t.key = p_key for update;
  v_now := clock_timestamp();
  if r.key is null or r.kept_until <= v_now then return p_state = 'r'; end if;
  if r.owner <> p_owner or r.fence <> p_fence then return false; end if;
  if r.state <> 'i' then return r.state::text = p_state and r.result = p_result; end if;
  perform distlock.record_end(r, p_state, p_retain, p_result);
  return true;
end $$;

-- Settles a locked record.
create or replace function distlock.record_end(r distlock.record, p_state text, p_retain bigint, p_result bytea)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  v_until timestamptz := clock_timestamp() + p_retain * interval '1 millisecond';
begin
  if p_state = 'r' then
    delete from distlock.record t where t.namespace = r.namespace and t.key = r.key;
  else
    update distlock.record t
      set state = p_state::"char", owner = r.owner, result = p_result, kept_until = v_until, sweep_at = v_until, watchers = '{}'
      where t.namespace = r.namespace and t.key = r.key;
  end if;
  perform distlock.record_tell(r.watchers, r.key);
end $$;

-- Settles a record whose outcome nobody knows. 1: so it is | 0: it is known, another request's, or under way | -1: there is none.
-- A transaction that is at it isn't waited for: that may take long, and whoever else uses this connection would wait too.
create or replace function distlock.record_resolve(
  p_namespace text, p_key bytea, p_state text, p_retain bigint, p_result bytea, p_version integer, p_fingerprint bytea
) returns integer language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
#variable_conflict use_column
declare
  r distlock.record;
  v_now timestamptz;
begin
  begin
    select t.* into r from distlock.record t where t.namespace = p_namespace and t.key = p_key for update nowait;
  exception when lock_not_available then
    return 0;
  end;
  v_now := clock_timestamp();
  if r.key is null or r.kept_until <= v_now then return -1; end if;
  if r.state not in ('i', 'u') or (r.state = 'i' and r.lease_until > v_now)
    or (p_fingerprint is not null and (r.fingerprint <> p_fingerprint or r.fingerprint_version <> p_version)) then
    return 0;
  end if;
  -- Whoever had claimed it is fenced off.
  r.owner := '';
  perform distlock.record_end(r, p_state, p_retain, p_result);
  return 1;
end $$;

-- Milliseconds that the lease of one in flight still runs, whose end will be told to the channel; null of any other.
create or replace function distlock.record_watch(p_namespace text, p_key bytea, p_channel text, p_most integer) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  r distlock.record;
begin
  select t.* into r from distlock.record t where t.namespace = p_namespace and t.key = p_key;
  if p_channel is not null and r.state = 'i' and r.kept_until > clock_timestamp() and not p_channel = any (r.watchers) then
    update distlock.record t set watchers = t.watchers || p_channel
      where t.namespace = p_namespace and t.key = p_key and t.state = 'i' and cardinality(t.watchers) < p_most
        and not p_channel = any (t.watchers);
    if not found then
      -- It ended meanwhile, or has enough of them.
      select t.* into r from distlock.record t where t.namespace = p_namespace and t.key = p_key;
    end if;
  end if;
  if r.state = 'i' and r.kept_until > clock_timestamp() then
    return (select s.rest from distlock.record_shown(r) s);
  end if;
  return null;
end $$;

-- Forgets records of a scope, and gives their places back. left_over: whether there are more; in_flight: those that stay.
create or replace function distlock.record_purge(
  p_namespace text, p_scope bytea, p_limit bigint, out removed bigint, out left_over boolean, out in_flight bigint
) language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_gone bytea[];
  r record;
begin
  removed := 0;
  for r in
    delete from distlock.record t
      where t.namespace = p_namespace and t.key = any (array(
        select o.key from distlock.record o
        where o.namespace = p_namespace and o.scope = p_scope and (o.state <> 'i' or o.lease_until <= v_now)
        order by o.key limit p_limit for update skip locked))
      returning t.key, t.watchers
  loop
    removed := removed + 1;
    v_gone := v_gone || r.key;
    perform distlock.record_tell(r.watchers, r.key);
  end loop;
  if removed > 0 then perform distlock.record_give_back(p_namespace, p_scope, v_gone); end if;
  left_over := exists (
    select from distlock.record o
    where o.namespace = p_namespace and o.scope = p_scope and (o.state <> 'i' or o.lease_until <= v_now));
  in_flight := case when left_over then 0 else (
    select count(*) from distlock.record o where o.namespace = p_namespace and o.scope = p_scope) end;
end $$;

-- A page of records in the order of their keys, each with whether it passes: the rest of the lease or the length of the result, a
-- tombstone's reason, for how many milliseconds it is kept.
create or replace function distlock.record_list(
  p_namespace text, p_scope bytea, p_unresolved boolean, p_after bytea, p_page integer
) returns table (key bytea, fits boolean, state text, rest bigint, reason bytea, kept_for bigint, note text)
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
begin
  -- Two texts, for two indexes.
  if p_scope is null then
    return query
      select t.key, t.kept_until > v_now and (not p_unresolved or t.state = 'u' or (t.state = 'i' and t.lease_until <= v_now)),
        t.state::text, distlock.record_rest(t, v_now), case t.state when 't' then t.result else '' end,
        ceil(extract(epoch from t.kept_until - v_now) * 1000)::bigint, t.note
      from distlock.record t where t.namespace = p_namespace and t.key > p_after order by t.key limit p_page;
  else
    return query
      select t.key, t.kept_until > v_now and (not p_unresolved or t.state = 'u' or (t.state = 'i' and t.lease_until <= v_now)),
        t.state::text, distlock.record_rest(t, v_now), case t.state when 't' then t.result else '' end,
        ceil(extract(epoch from t.kept_until - v_now) * 1000)::bigint, t.note
      from distlock.record t
      where t.namespace = p_namespace and t.scope = p_scope and t.key > p_after order by t.key limit p_page;
  end if;
end $$;
