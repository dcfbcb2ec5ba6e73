-- The tables of locks, latches and waits.

-- Programs of another version that have changed a lock already are waited for, and others wait.
do $$
begin
  if pg_catalog.to_regclass('distlock.lease') is not null then
    lock table distlock.lease, distlock.waiter, distlock.latch in share row exclusive mode;
  end if;
end $$;

-- Plain exclusive locks, for which nobody waits: one row that is changed in place. Free is what has no owner or has lapsed. While there
-- is more of a lock than one plain holder it is "elsewhere": in the tables below. What has no row here has none there.
create table if not exists distlock.plain (
  namespace text collate "C" not null,
  name text collate "C" not null,
  owner text collate "C" not null,
  label text not null,
  expires_at timestamptz not null,
  elsewhere boolean not null,
  -- Until when it stays there at least.
  elsewhere_until timestamptz not null,
  primary key (namespace, name)
) with (fillfactor = 50);

-- Who holds all others. A lease that was handed to a waiter has no token until the waiter has asked for it.
create table if not exists distlock.lease (
  namespace text collate "C" not null,
  name text collate "C" not null,
  owner text collate "C" not null,
  label text not null,
  kind text not null,
  capacity bigint not null,
  weight bigint not null,
  party text,
  token bigint not null,
  expires_at timestamptz not null,
  primary key (namespace, name, owner)
) with (fillfactor = 70);

-- All of them.
create or replace view distlock.held as
  select l.namespace, l.name, l.owner, l.label, l.kind, l.capacity, l.weight, l.party, l.token, l.expires_at from distlock.lease l
  union all
  select p.namespace, p.name, p.owner, p.label, 'excl', 1, 1, null, 0, p.expires_at from distlock.plain p where p.owner <> '';

-- Who stands in line, in order of place.
create table if not exists distlock.waiter (
  namespace text collate "C" not null,
  name text collate "C" not null,
  owner text collate "C" not null,
  label text not null,
  kind text not null,
  capacity bigint not null,
  weight bigint not null,
  party text,
  place bigint not null,
  claim interval not null,
  channel text,
  live_until timestamptz not null,
  primary key (namespace, name, owner)
) with (fillfactor = 70);
create index if not exists waiter_place on distlock.waiter (namespace, name, place);

-- Acquisitions that were cancelled: one that is still under way must not take effect.
create table if not exists distlock.tombstone (
  owner text collate "C" primary key,
  expires_at timestamptz not null
);

-- Count-down latches, and which count-downs have been counted.
create table if not exists distlock.latch (
  namespace text collate "C" not null,
  name text collate "C" not null,
  total bigint not null,
  remaining bigint not null,
  channels text[] not null default '{}',
  expires_at timestamptz not null,
  primary key (namespace, name)
);
create table if not exists distlock.latch_count (
  namespace text collate "C" not null,
  name text collate "C" not null,
  owner text collate "C" not null,
  primary key (namespace, name, owner),
  foreign key (namespace, name) references distlock.latch on delete cascade
);

-- What the holders of locks wait for.
create table if not exists distlock.wait (
  namespace text collate "C" not null,
  name text collate "C" not null,
  id text collate "C" not null,
  beat bigint not null,
  owner text collate "C" not null,
  wanted_raw boolean not null,
  wanted text not null,
  who text not null,
  expires_at timestamptz not null,
  primary key (namespace, name, id)
);
