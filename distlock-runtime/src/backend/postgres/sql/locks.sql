-- Locks, as far as they have more than one plain holder. Every function but renew gathers what there is of the lock first, so that there is one
-- at a time for each key, and reads the clock after that. Each is safe to repeat with the same owner.

-- Whether one more hold of this weight, or of this party, has room beside those that there are.
create or replace function distlock.fits(
  p_namespace text, p_name text, p_capacity bigint, p_weight bigint, p_party text
) returns boolean language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
begin
  if p_party is not null then
    return not exists (
      select from distlock.lease l
      where l.namespace = p_namespace and l.name = p_name and l.party is distinct from p_party
    );
  end if;
  return p_weight + coalesce((
    select sum(l.weight) from distlock.lease l where l.namespace = p_namespace and l.name = p_name
  ), 0) <= p_capacity;
end $$;

-- Drops what is over, and hands what is free to the head of the line for as long as it fits: nobody is passed by. What is left
-- after it counts as held until the end of the transaction, whatever the clock says: it may be renewed at any moment.
create or replace function distlock.tidy(p_namespace text, p_name text, p_now timestamptz)
returns void language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_head distlock.waiter;
begin
  delete from distlock.lease l where l.namespace = p_namespace and l.name = p_name and l.expires_at <= p_now;
  loop
    select * into v_head from distlock.waiter w
    where w.namespace = p_namespace and w.name = p_name order by w.place limit 1;
    exit when not found;
    if v_head.live_until > p_now then
      exit when not distlock.fits(p_namespace, p_name, v_head.capacity, v_head.weight, v_head.party);
      perform distlock.admit(
        p_namespace, p_name, v_head.owner, v_head.label, v_head.kind, v_head.capacity, v_head.weight, v_head.party,
        p_now + v_head.claim
      );
      if v_head.channel is not null then
        perform pg_notify(v_head.channel, v_head.owner);
      end if;
    end if;
    delete from distlock.waiter w
    where w.namespace = p_namespace and w.name = p_name and w.owner = v_head.owner;
  end loop;
end $$;

-- One more hold. The first of a party calls in those who wait under the same: they needn't wait for others.
create or replace function distlock.admit(
  p_namespace text, p_name text, p_owner text, p_label text, p_kind text, p_capacity bigint, p_weight bigint,
  p_party text, p_until timestamptz
) returns void language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_shared bigint := 0;
begin
  if p_party is not null then
    select max(l.token) into v_shared from distlock.lease l where l.namespace = p_namespace and l.name = p_name;
    if v_shared is null then
      v_shared := 0;
      perform pg_notify(w.channel, w.owner) from distlock.waiter w
      where w.namespace = p_namespace and w.name = p_name and w.party = p_party and w.owner <> p_owner
        and w.channel is not null;
    end if;
  end if;
  insert into distlock.lease (namespace, name, owner, label, kind, capacity, weight, party, token, expires_at)
  values (p_namespace, p_name, p_owner, p_label, p_kind, p_capacity, p_weight, p_party, v_shared, p_until);
end $$;

-- The token of a hold: a block of 1024 of its own; for a reader the last one that a writer before can have; for a party one that its
-- holds share.
create or replace function distlock.draw(p_namespace text, p_name text, p_owner text, p_kind text, p_weight bigint)
returns bigint language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_token bigint;
begin
  if p_kind = 'rw' and p_weight = 1 then
    select t.last_value + 1023 into v_token from distlock.token t;
    return v_token;
  end if;
  if p_kind = 'own' then
    select max(l.token) into v_token from distlock.lease l where l.namespace = p_namespace and l.name = p_name;
    if v_token > 0 then
      return v_token;
    end if;
  end if;
  v_token := nextval('distlock.token');
  if p_kind = 'own' then
    update distlock.lease l set token = v_token where l.namespace = p_namespace and l.name = p_name;
  end if;
  return v_token;
end $$;

-- What stands in the way of a request of this kind: "cancelled", "conflict", "limit" with the one that there is, or nothing.
create or replace function distlock.objection(
  p_namespace text, p_name text, p_owner text, p_kind text, p_capacity bigint, p_now timestamptz,
  out obstacle text, out found_limit bigint
) language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_kind text;
  v_capacity bigint;
begin
  if exists (select from distlock.tombstone t where t.owner = p_owner and t.expires_at > p_now) then
    obstacle := 'cancelled';
    return;
  end if;
  if exists (
    select from distlock.latch c where c.namespace = p_namespace and c.name = p_name and c.expires_at > p_now
  ) then
    obstacle := 'conflict';
    return;
  end if;
  select l.kind, l.capacity into v_kind, v_capacity from distlock.lease l
  where l.namespace = p_namespace and l.name = p_name limit 1;
  if not found then
    select w.kind, w.capacity into v_kind, v_capacity from distlock.waiter w
    where w.namespace = p_namespace and w.name = p_name limit 1;
  end if;
  if v_kind <> p_kind then
    obstacle := 'conflict';
  elsif v_capacity <> p_capacity then
    obstacle := 'limit';
    found_limit := v_capacity;
  end if;
end $$;

-- The hold that lapses first unless it is renewed.
create or replace function distlock.blocker(
  p_namespace text, p_name text, out holder text, out holder_label text, out remaining bigint
) language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
begin
  select l.owner, l.label, ceil(extract(epoch from l.expires_at - clock_timestamp()) * 1000)::bigint
  into holder, holder_label, remaining
  from distlock.lease l where l.namespace = p_namespace and l.name = p_name order by l.expires_at limit 1;
end $$;

-- One attempt. "outcome": granted with a token | busy | queued | cancelled before | conflict with another kind | limit, with the
-- semaphore's own as token. Times are in milliseconds.
create or replace function distlock.acquire(
  p_namespace text, p_name text, p_owner text, p_label text, p_kind text, p_capacity bigint, p_weight bigint,
  p_party text, p_ttl bigint, p_fair boolean, p_queue boolean, p_claim bigint, p_channel text, p_live bigint,
  p_longest bigint,
  out outcome text, out token bigint, out holder text, out holder_label text, out remaining bigint
) language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_now timestamptz := distlock.gather(p_namespace, p_name);
  v_until timestamptz := v_now + p_ttl * interval '1 millisecond';
  v_first bigint;
  v_last bigint;
begin
  perform distlock.tidy(p_namespace, p_name, v_now);
  select o.obstacle, o.found_limit into outcome, token
  from distlock.objection(p_namespace, p_name, p_owner, p_kind, p_capacity, v_now) o;
  if outcome is not null then
    return;
  end if;
  update distlock.lease l set expires_at = greatest(l.expires_at, v_until)
  where l.namespace = p_namespace and l.name = p_name and l.owner = p_owner;
  if not found then
    select min(w.place), max(w.place) into v_first, v_last from distlock.waiter w
    where w.namespace = p_namespace and w.name = p_name;
    if p_party is not null and exists (
      select from distlock.lease l where l.namespace = p_namespace and l.name = p_name and l.party = p_party
    ) or (v_first is null or not p_fair) and distlock.fits(p_namespace, p_name, p_capacity, p_weight, p_party) then
      perform distlock.admit(
        p_namespace, p_name, p_owner, p_label, p_kind, p_capacity, p_weight, p_party, v_until
      );
    else
      outcome := 'busy';
      if p_queue then
        update distlock.waiter w set live_until = v_now + p_live * interval '1 millisecond', channel = p_channel
        where w.namespace = p_namespace and w.name = p_name and w.owner = p_owner;
        if found then
          outcome := 'queued';
        elsif v_first is null or v_last - v_first < p_longest then
          insert into distlock.waiter
            (namespace, name, owner, label, kind, capacity, weight, party, place, claim, channel, live_until)
          values
            (p_namespace, p_name, p_owner, p_label, p_kind, p_capacity, p_weight, p_party, coalesce(v_last, 0) + 1,
             p_claim * interval '1 millisecond', p_channel, v_now + p_live * interval '1 millisecond');
          outcome := 'queued';
        end if;
      end if;
      select b.holder, b.holder_label, b.remaining into holder, holder_label, remaining
      from distlock.blocker(p_namespace, p_name) b;
      return;
    end if;
    -- It may have been in line and pass those who wait, as a plain lock or beside its party.
    if v_first is not null then
      delete from distlock.waiter w where w.namespace = p_namespace and w.name = p_name and w.owner = p_owner;
    end if;
  end if;
  outcome := 'granted';
  token := distlock.draw(p_namespace, p_name, p_owner, p_kind, p_weight);
end $$;

-- One attempt at several exclusive locks: all or none. A row for each with its token, or one row with the place (from 1) of the one
-- that is in the way.
create or replace function distlock.acquire_all(
  p_namespaces text[], p_names text[], p_owners text[], p_ttls bigint[], p_label text
) returns table (outcome text, place bigint, token bigint, holder text, holder_label text, remaining bigint)
language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_now timestamptz;
  v_one record;
  v_mine boolean;
begin
  -- In one order everywhere: nobody waits in a circle.
  for v_one in
    select k.namespace, k.name from unnest(p_namespaces, p_names) as k(namespace, name)
    group by 1, 2 order by hashtextextended(k.name, hashtext(k.namespace))
  loop
    perform distlock.enter(v_one.namespace, v_one.name);
  end loop;
  -- Those who renew have another order, and no turn.
  for v_one in
    select k.namespace, k.name from unnest(p_namespaces, p_names) as k(namespace, name)
    group by 1, 2 order by k.namespace collate "C", k.name collate "C"
  loop
    v_now := distlock.gather_in_turn(v_one.namespace, v_one.name);
  end loop;
  for v_one in
    select k.* from unnest(p_namespaces, p_names, p_owners) with ordinality as k(namespace, name, owner, place)
    order by k.namespace collate "C", k.name collate "C"
  loop
    perform distlock.tidy(v_one.namespace, v_one.name, v_now);
    select o.obstacle, o.found_limit into outcome, token
    from distlock.objection(v_one.namespace, v_one.name, v_one.owner, 'excl', 1, v_now) o;
    if outcome is not null then
      place := v_one.place;
      return next;
      return;
    end if;
    v_mine := exists (
      select from distlock.lease l
      where l.namespace = v_one.namespace and l.name = v_one.name and l.owner = v_one.owner
    );
    if not v_mine and not distlock.fits(v_one.namespace, v_one.name, 1, 1, null) then
      outcome := 'busy';
      place := v_one.place;
      select b.holder, b.holder_label, b.remaining into holder, holder_label, remaining
      from distlock.blocker(v_one.namespace, v_one.name) b;
      return next;
      return;
    end if;
  end loop;
  for v_one in
    select k.* from unnest(p_namespaces, p_names, p_owners, p_ttls) with ordinality
      as k(namespace, name, owner, ttl, place)
    order by k.namespace collate "C", k.name collate "C"
  loop
    update distlock.lease l set expires_at = greatest(l.expires_at, v_now + v_one.ttl * interval '1 millisecond')
    where l.namespace = v_one.namespace and l.name = v_one.name and l.owner = v_one.owner;
    if not found then
      perform distlock.admit(
        v_one.namespace, v_one.name, v_one.owner, p_label, 'excl', 1, 1, null,
        v_now + v_one.ttl * interval '1 millisecond'
      );
    end if;
    outcome := 'granted';
    place := v_one.place;
    token := nextval('distlock.token');
    return next;
  end loop;
end $$;

-- The places (from 1) of the leases that are gone; the others run their full ttl again. It needs no lock of a key: what is over
-- stays over, and who looks meanwhile waits for this row. A lease moves from the plain ones to the others and never back, so whoever
-- isn't there any more is looked for here.
create or replace function distlock.renew(p_namespaces text[], p_names text[], p_owners text[], p_ttls bigint[])
returns setof bigint language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_one record;
  v_others bigint[] := '{}';
begin
  for v_one in
    select k.* from unnest(p_namespaces, p_names, p_owners, p_ttls) with ordinality
      as k(namespace, name, owner, ttl, place)
    order by k.namespace collate "C", k.name collate "C", k.owner collate "C"
  loop
    update distlock.plain p
    set expires_at = greatest(p.expires_at, clock_timestamp() + v_one.ttl * interval '1 millisecond')
    where p.namespace = v_one.namespace and p.name = v_one.name and p.owner = v_one.owner
      and p.expires_at > clock_timestamp();
    if not found then
      v_others := v_others || v_one.place;
    end if;
  end loop;
  for v_one in
    select k.* from unnest(p_namespaces, p_names, p_owners, p_ttls) with ordinality
      as k(namespace, name, owner, ttl, place)
    where k.place = any (v_others)
    order by k.namespace collate "C", k.name collate "C", k.owner collate "C"
  loop
    update distlock.lease l
    set expires_at = greatest(l.expires_at, clock_timestamp() + v_one.ttl * interval '1 millisecond')
    where l.namespace = v_one.namespace and l.name = v_one.name and l.owner = v_one.owner
      and l.expires_at > clock_timestamp();
    if not found then
      return next v_one.place;
    end if;
  end loop;
end $$;

-- Whether the lease was ours. Kept, it goes on under another name: nothing of this owner that is still under way lengthens it.
create or replace function distlock.release(p_namespace text, p_name text, p_owner text, p_keep bigint)
returns boolean language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_now timestamptz := distlock.gather(p_namespace, p_name);
  v_held boolean;
begin
  if p_keep is null then
    -- Whatever its time: a renewal that is under way still counts for what lapses meanwhile.
    delete from distlock.lease l
    where l.namespace = p_namespace and l.name = p_name and l.owner = p_owner
    returning l.expires_at > v_now into v_held;
    v_held := coalesce(v_held, false);
  else
    v_held := exists (
      select from distlock.lease l
      where l.namespace = p_namespace and l.name = p_name and l.owner = p_owner and l.expires_at > v_now
    );
    if v_held then
      delete from distlock.lease l where l.namespace = p_namespace and l.name = p_name and l.owner = reverse(p_owner);
      update distlock.lease l set owner = reverse(p_owner), expires_at = v_now + p_keep * interval '1 millisecond'
      where l.namespace = p_namespace and l.name = p_name and l.owner = p_owner;
    end if;
  end if;
  perform distlock.tidy(p_namespace, p_name, v_now);
  perform distlock.scatter(p_namespace, p_name, v_now);
  return v_held;
end $$;

-- Undoes an attempt, also one that is still under way: it finds its tombstone.
create or replace function distlock.cancel(p_namespace text, p_name text, p_owner text, p_life bigint)
returns void language plpgsql set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  v_now timestamptz := distlock.gather(p_namespace, p_name);
begin
  insert into distlock.tombstone as t (owner, expires_at)
  values (p_owner, v_now + p_life * interval '1 millisecond')
  on conflict (owner) do update set expires_at = greatest(t.expires_at, excluded.expires_at);
  -- A statement of the plain way that began before doesn't see the tombstone.
  update distlock.plain p set elsewhere_until = v_now + interval '30 seconds'
  where p.namespace = p_namespace and p.name = p_name;
  delete from distlock.waiter w where w.namespace = p_namespace and w.name = p_name and w.owner = p_owner;
  delete from distlock.lease l where l.namespace = p_namespace and l.name = p_name and l.owner = p_owner;
  perform distlock.tidy(p_namespace, p_name, v_now);
end $$;
