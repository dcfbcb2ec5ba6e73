-- Count-down latches.

-- A latch: "left" with how many, "conflict" with a lock, or "limit" with the number that it counts from. With an owner it counts down
-- by p_by, once; with neither an owner nor p_wait nothing is made.
create or replace function distlock.latch(
  p_namespace text, p_name text, p_total bigint, p_retain bigint, p_owner text, p_by bigint, p_wait boolean,
  p_channel text, p_message text, p_most integer,
  out outcome text, out remaining bigint
) language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_now timestamptz := distlock.gather(p_namespace, p_name);
  v_until timestamptz := v_now + p_retain * interval '1 millisecond';
  v_latch distlock.latch;
  v_left bigint;
begin
  perform distlock.tidy(p_namespace, p_name, v_now);
  if exists (select from distlock.lease l where l.namespace = p_namespace and l.name = p_name)
    or exists (select from distlock.waiter w where w.namespace = p_namespace and w.name = p_name) then
    outcome := 'conflict';
    return;
  end if;
  delete from distlock.latch c where c.namespace = p_namespace and c.name = p_name and c.expires_at <= v_now;
  select * into v_latch from distlock.latch c where c.namespace = p_namespace and c.name = p_name;
  if v_latch.total <> p_total then
    outcome := 'limit';
    remaining := v_latch.total;
    return;
  end if;
  outcome := 'left';
  remaining := coalesce(v_latch.remaining, p_total);
  if p_owner is null and not p_wait then
    return;
  end if;
  insert into distlock.latch as c (namespace, name, total, remaining, expires_at)
  values (p_namespace, p_name, p_total, p_total, v_until)
  on conflict (namespace, name) do update set expires_at = greatest(c.expires_at, excluded.expires_at);
  if p_owner is not null and remaining > 0 then
    insert into distlock.latch_count (namespace, name, owner) values (p_namespace, p_name, p_owner)
    on conflict do nothing;
    if found then
      v_left := greatest(0, remaining - p_by);
      remaining := v_left;
      update distlock.latch c set remaining = v_left
      where c.namespace = p_namespace and c.name = p_name;
      if remaining = 0 then
        delete from distlock.latch_count k where k.namespace = p_namespace and k.name = p_name;
        perform pg_notify(channel, p_message) from unnest(v_latch.channels) as channel;
        update distlock.latch c set channels = '{}' where c.namespace = p_namespace and c.name = p_name;
      end if;
    end if;
  end if;
  if p_wait and remaining > 0 and p_channel is not null then
    update distlock.latch c set channels = c.channels || p_channel
    where c.namespace = p_namespace and c.name = p_name
      and not p_channel = any (c.channels) and cardinality(c.channels) < p_most;
  end if;
end $$;
