-- Looking at locks, and changing what others hold.

-- Takes all holds away; of them the one that would have lasted longest. "conflict": it is a latch.
create or replace function distlock.force_release(
  p_namespace text, p_name text,
  out outcome text, out holder text, out holder_label text, out weight bigint, out remaining bigint
) language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_now timestamptz := distlock.gather(p_namespace, p_name);
begin
  if exists (
    select from distlock.latch c where c.namespace = p_namespace and c.name = p_name and c.expires_at > v_now
  ) then
    outcome := 'conflict';
    return;
  end if;
  select l.kind, l.owner, l.label, l.weight, ceil(extract(epoch from l.expires_at - v_now) * 1000)::bigint
  into outcome, holder, holder_label, weight, remaining
  from distlock.lease l where l.namespace = p_namespace and l.name = p_name and l.expires_at > v_now
  order by l.expires_at desc limit 1;
  delete from distlock.lease l where l.namespace = p_namespace and l.name = p_name;
  perform distlock.tidy(p_namespace, p_name, v_now);
  perform distlock.scatter(p_namespace, p_name, v_now);
end $$;

-- Changes a hold of a read/write lock without a gap: to a writer only if nobody else reads or waits.
create or replace function distlock.convert(
  p_namespace text, p_name text, p_owner text, p_weight bigint, p_ttl bigint,
  out outcome text, out token bigint, out holder text, out holder_label text, out remaining bigint
) language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_now timestamptz := distlock.gather(p_namespace, p_name);
  v_held distlock.lease;
begin
  perform distlock.tidy(p_namespace, p_name, v_now);
  select * into v_held from distlock.lease l
  where l.namespace = p_namespace and l.name = p_name and l.owner = p_owner;
  if not found then
    outcome := 'gone';
    return;
  end if;
  if v_held.kind <> 'rw' then
    outcome := 'conflict';
    return;
  end if;
  if p_weight > v_held.weight and (
    exists (select from distlock.lease l where l.namespace = p_namespace and l.name = p_name and l.owner <> p_owner)
    or exists (select from distlock.waiter w where w.namespace = p_namespace and w.name = p_name)
  ) then
    outcome := 'busy';
    select b.holder, b.holder_label, b.remaining into holder, holder_label, remaining
    from distlock.blocker(p_namespace, p_name) b;
    return;
  end if;
  update distlock.lease l
  set weight = p_weight, expires_at = greatest(l.expires_at, v_now + p_ttl * interval '1 millisecond')
  where l.namespace = p_namespace and l.name = p_name and l.owner = p_owner;
  perform distlock.tidy(p_namespace, p_name, v_now);
  outcome := 'granted';
  token := distlock.draw(p_namespace, p_name, p_owner, 'rw', p_weight);
end $$;

-- Gives a semaphore another limit: "changed", "free" if nobody uses it, "conflict" if it is no semaphore.
create or replace function distlock.resize(p_namespace text, p_name text, p_limit bigint)
returns text language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_now timestamptz := distlock.gather(p_namespace, p_name);
  v_kind text;
begin
  perform distlock.tidy(p_namespace, p_name, v_now);
  select coalesce(
    (select l.kind from distlock.lease l where l.namespace = p_namespace and l.name = p_name limit 1),
    (select w.kind from distlock.waiter w where w.namespace = p_namespace and w.name = p_name limit 1)
  ) into v_kind;
  if v_kind is null then
    return 'free';
  end if;
  if v_kind <> 'sem' then
    return 'conflict';
  end if;
  update distlock.lease l set capacity = p_limit where l.namespace = p_namespace and l.name = p_name;
  update distlock.waiter w set capacity = p_limit where w.namespace = p_namespace and w.name = p_name;
  -- Those who took part under the other limit ask again, and are told.
  perform pg_notify(w.channel, w.owner) from distlock.waiter w
  where w.namespace = p_namespace and w.name = p_name and w.channel is not null;
  perform distlock.tidy(p_namespace, p_name, v_now);
  return 'changed';
end $$;

-- What is known of some locks, with so many of the holders of each, those that last longest first.
create or replace function distlock.state(p_namespace text, p_names text[], p_most bigint)
returns table (
  name text, kind text, capacity bigint, owner text, label text, weight bigint, remaining bigint,
  holders bigint, used bigint, waiters bigint, is_latch boolean, party text
) language sql stable set search_path = pg_catalog, pg_temp as $$
  select n.name, coalesce(l.kind, w.kind), coalesce(l.capacity, w.capacity), l.owner, l.label, l.weight,
    ceil(extract(epoch from l.expires_at - clock_timestamp()) * 1000)::bigint,
    coalesce(l.holders, 0), coalesce(l.used, 0)::bigint, w.waiters,
    exists (
      select from distlock.latch c
      where c.namespace = p_namespace and c.name = n.name and c.expires_at > clock_timestamp()
    ), l.party
  from unnest(p_names) with ordinality as n(name, place)
  left join lateral (
    select h.*, count(*) over () as holders, sum(h.weight) over () as used
    from distlock.held h
    where h.namespace = p_namespace and h.name = n.name and h.expires_at > clock_timestamp()
    order by h.expires_at desc limit p_most
  ) l on true
  left join lateral (
    select count(*) as waiters, min(q.kind) as kind, min(q.capacity) as capacity
    from distlock.waiter q
    where q.namespace = p_namespace and q.name = n.name and q.live_until > clock_timestamp()
  ) w on true
  order by n.place, l.expires_at desc
$$;
