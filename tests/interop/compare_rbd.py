#!/usr/bin/python3
"""Runs every subcommand of `rbd` on a real Ceph 16.2 and on ours and compares: exit codes, the
keys of JSON outputs at every depth, and the words and numbers of plain and JSON outputs (ids,
times, addresses and progress left out). What images hold is compared by checksums.

    tests/interop/compare_rbd.py [--verbose] [WORD ...]     only commands that contain all WORDs

Exit code 1 when something differs that is not named in DIFFERENT."""
import re
import sys

import comparison

# As in comparison.Comparison. `{trash:NAME}` is the id of an image in the trash,
# `{locker:IMAGE/LOCK}` who holds a lock, `{peer:POOL}` a mirror peer, `{id:IMAGE}` an image's id.
COMMANDS = """
- ceph osd pool create rbd 8 8
- ceph osd pool create other 8 8
- settle
rbd pool init rbd
rbd pool init other
rbd pool init nopool
rbd pool init rbd
- bash -c "head -c 5000000 /dev/zero | tr '\\\\0' x > data; head -c 12288 /dev/zero > zeros; (cat data zeros; echo end) > mixed; echo secret > pass"
J rbd ls
J rbd ls -l
rbd create --size 10M a
rbd create --size 10M a
rbd create a2
rbd create --size 10M --object-size 1M --stripe-unit 65536 --stripe-count 4 striped
rbd create --size 10M --stripe-unit 65536 badstripe
rbd create --size 10M --order 30 badorder
rbd create --size 10M --object-size 100 badobject
rbd create --size 10M --image-feature layering plain
rbd create --size 10M --image-feature object-map bad
rbd create --size 10M --image-feature nonsense bad
rbd create --size 10M --data-pool other split
rbd create --size 10M --data-pool nopool bad
rbd create --size 10M nopool/a
rbd create --size 10M rbd/nons/a
rbd create --size 10M --image-feature layering,exclusive-lock,object-map,fast-diff,journaling j
rbd create --size 10M --image-shared shared
rbd create --size 10M --thick-provision --no-progress thick
J rbd ls
J rbd ls -l
J rbd info a
J rbd info striped
J rbd info plain
J rbd info split
J rbd info j
J rbd info shared
J rbd info nope
J rbd info nopool/a
J rbd info a@nosnap
J rbd info --image-id {id:a}
J rbd status a
J rbd status nope
rbd resize --no-progress --size 20M a
rbd resize --no-progress --size 5M a
rbd resize --no-progress --allow-shrink --size 12M a
rbd resize --no-progress --size 12M a
rbd resize --no-progress --size 12M nope
rbd import --no-progress mixed im
rbd import --no-progress mixed im
rbd import --no-progress nofile im2
bash -c "rbd export --no-progress im - | sha256sum"
rbd export --no-progress im out
rbd export --no-progress im out
rbd export --no-progress nope out2
rbd bench --io-type nonsense a
rbd bench --io-type write --io-size 4096 --io-total 40960 --io-threads 1 a
rbd bench --io-type read --io-size 4096 --io-total 8192 --io-threads 1 --io-pattern rand a
rbd bench --io-type readwrite --io-size 4096 --io-total 8192 --io-threads 1 im
rbd bench --io-type write --io-size 4096 --io-total 4096 nope
J rbd du
J rbd du a
J rbd du thick
J rbd du plain
J rbd du nope
J rbd diff a
J rbd diff --whole-object a
J rbd diff im
J rbd diff plain
rbd snap create --no-progress a@s1
rbd snap create --no-progress a@s1
rbd snap create --no-progress nope@s1
rbd bench --io-type write --io-size 8192 --io-total 8192 --io-threads 1 a
rbd snap create --no-progress a@s2
rbd resize --no-progress --size 24M a
rbd snap create --no-progress --skip-quiesce a@s3
J rbd snap ls a
J rbd snap ls --all a
J rbd snap ls nope
J rbd snap ls plain
rbd snap protect a@s1
rbd snap protect a@s1
rbd snap protect a@nosnap
rbd snap rm --no-progress a@s1
rbd snap unprotect a@s2
rbd snap unprotect a@s1
rbd snap rename a@s3 a@s4
rbd snap rename a@s3 a@s5
rbd snap rename a@s4 a@s2
rbd snap limit set --limit 3 a
rbd snap create --no-progress a@s6
rbd snap limit clear a
J rbd diff --from-snap s1 a@s2
J rbd diff --from-snap s1 a
J rbd diff --from-snap nosnap a
J rbd du a
J rbd du a@s1
J rbd du --exact a
J rbd info a@s1
J rbd ls -l
rbd export-diff --no-progress a@s1 d1
rbd export-diff --no-progress --from-snap s1 a@s2 d2
rbd export-diff --no-progress --from-snap nosnap a d3
rbd merge-diff --no-progress d1 d2 d12
rbd merge-diff --no-progress d2 d1 d21
bash -c "sha256sum d1 d2 d12"
rbd create --size 12M target
rbd import-diff --no-progress d2 target
rbd import-diff --no-progress d12 target
rbd import-diff --no-progress d1 target
rbd import-diff --no-progress nofile target
J rbd snap ls target
bash -c "rbd export --no-progress target@s2 - | sha256sum"
rbd export --no-progress --export-format 2 a v2
rbd import --no-progress --export-format 2 v2 fromv2
rbd import --no-progress --export-format 2 mixed bad
J rbd snap ls fromv2
bash -c "rbd export --no-progress fromv2 - | sha256sum"
rbd snap rollback --no-progress a@s1
rbd snap rollback --no-progress a@nosnap
J rbd info a
bash -c "rbd export --no-progress a - | sha256sum"
rbd rm --no-progress a
rbd snap protect a@s1
rbd clone a@s1 c1
rbd clone a@s1 c1
rbd clone a@nosnap c9
rbd clone --rbd-default-clone-format 1 a@s2 c9
rbd clone --rbd-default-clone-format 1 a@s1 v1clone
rbd clone --rbd-default-clone-format 2 a@s2 other/c2
rbd clone --stripe-unit 65536 --stripe-count 2 --object-size 1M a@s1 c3
J rbd info c1
J rbd info other/c2
J rbd children a
J rbd children a@s1
J rbd children --descendants a
J rbd children a@nosnap
J rbd ls -l
J rbd snap ls a
rbd snap unprotect a@s1
rbd bench --io-type write --io-size 4096 --io-total 4096 --io-threads 1 c1
J rbd du c1
J rbd diff c1
J rbd diff --whole-object c1
bash -c "rbd export --no-progress c3 - | sha256sum"
rbd flatten --no-progress c1
rbd flatten --no-progress c1
rbd flatten --no-progress nope
J rbd info c1
J rbd children a@s1
rbd snap rm --no-progress a@s2
J rbd snap ls --all a
J rbd children --all a
rbd rm --no-progress other/c2
J rbd snap ls --all a
rbd rm --no-progress v1clone
rbd rm --no-progress nope
rbd cp --no-progress a other/copy
rbd cp --no-progress a other/copy
rbd cp --no-progress nope other/copy2
J rbd info other/copy
rbd deep cp --no-progress a other/deep
rbd deep cp --no-progress --flatten c3 other/flat
rbd deep cp --no-progress nope other/deep2
J rbd snap ls other/deep
J rbd info other/flat
bash -c "rbd export --no-progress other/deep - | sha256sum"
bash -c "rbd export --no-progress other/flat - | sha256sum"
rbd rename plain renamed
rbd rename plain renamed2
rbd rename renamed im
rbd rename renamed other/renamed
J rbd info renamed
rbd feature enable renamed exclusive-lock object-map fast-diff
rbd feature enable renamed exclusive-lock
rbd feature enable renamed nonsense
rbd feature enable renamed layering
J rbd info renamed
J rbd du renamed
rbd object-map check --no-progress renamed
rbd object-map rebuild --no-progress renamed
rbd object-map check --no-progress renamed
rbd object-map check --no-progress nope
rbd object-map rebuild --no-progress shared
J rbd info renamed
rbd feature disable renamed exclusive-lock
rbd feature disable renamed fast-diff
rbd feature disable renamed fast-diff
rbd feature disable renamed deep-flatten
rbd feature disable renamed layering
J rbd info renamed
rbd feature enable renamed journaling
J rbd journal info --image renamed
J rbd journal status --image renamed
rbd feature disable renamed journaling
J rbd journal info --image renamed
J rbd journal info --journal {id:j}
rbd bench --io-type write --io-size 4096 --io-total 40960 --io-threads 1 j
J rbd journal info --image j
J rbd journal status --image j
rbd journal inspect --image j
rbd journal inspect --image nope
rbd journal export --image j --path jexport
rbd journal import --path nosuchfile --dest j
rbd journal import --path mixed --dest j
rbd journal export --image nope --path jexport2
rbd journal client disconnect --image j
rbd journal client disconnect --image j --client-id nobody
J rbd journal status --image j
rbd journal reset --image j
J rbd journal info --image j
rbd create --size 8M --image-feature layering,exclusive-lock,journaling replayed
J rbd journal status --image replayed
J rbd lock ls renamed
rbd lock add renamed lockid
rbd lock add renamed lockid2
rbd lock add --shared tag renamed lockid3
J rbd lock ls renamed
J rbd status renamed
rbd lock rm renamed lockid client.1
rbd lock rm renamed lockid {locker:renamed/lockid}
rbd lock rm renamed lockid client.1
rbd lock add --shared tag renamed l1
rbd lock add --shared tag renamed l2
rbd lock add --shared tag2 renamed l3
J rbd lock ls renamed
rbd lock rm renamed l1 {locker:renamed/l1}
rbd lock rm renamed l2 {locker:renamed/l2}
rbd lock add nope lockid
J rbd lock ls nope
rbd watch nope
J rbd image-meta ls a
rbd image-meta set a key value
rbd image-meta set a conf_rbd_cache false
rbd image-meta get a key
rbd image-meta get a nokey
J rbd image-meta ls a
rbd image-meta rm a key
rbd image-meta rm a key
rbd image-meta set nope key value
rbd config global set global rbd_cache false
rbd config global set client rbd_cache true
rbd config global set nonsense rbd_cache true
rbd config global set global nonsense true
rbd config global set global rbd_cache nonsense
rbd config global get global rbd_cache
rbd config global get global rbd_default_order
J rbd config global ls global
rbd config global rm global rbd_cache
rbd config global rm client rbd_cache
rbd config global rm global rbd_cache
rbd config pool set rbd rbd_default_order 21
rbd config pool set rbd nonsense 21
rbd config pool set nopool rbd_default_order 21
rbd config pool get rbd rbd_default_order
rbd config pool get rbd rbd_cache
J rbd config pool ls rbd
rbd config pool rm rbd rbd_default_order
rbd config pool rm rbd rbd_default_order
rbd config image set a rbd_cache false
rbd config image get a rbd_cache
rbd config image get a rbd_default_order
J rbd config image ls a
rbd config image rm a rbd_cache
rbd config image rm a rbd_cache
rbd config image set nope rbd_cache false
rbd trash mv shared
rbd trash mv shared
rbd trash mv a
rbd trash mv im --expires-at 2099-01-01
rbd trash mv thick --expires-at nonsense
J rbd trash ls
J rbd trash ls --all
J rbd trash ls --long
J rbd trash ls nopool
rbd trash rm --no-progress {trash:im}
rbd trash rm --no-progress 123456
rbd trash restore 123456
rbd trash restore --image a {trash:shared}
rbd trash restore --image back {trash:shared}
rbd trash restore {trash:im}
J rbd info back
rbd trash mv back
rbd trash purge --no-progress nopool
rbd trash purge --no-progress --threshold 2 rbd
rbd trash purge --no-progress rbd
rbd trash purge --no-progress rbd
J rbd trash ls
rbd trash mv thick --expires-at 2099-01-01
rbd trash rm --no-progress --force {trash:thick}
J rbd namespace ls
rbd namespace create rbd/ns
rbd namespace create rbd/ns
rbd namespace create nopool/ns
rbd create --size 5M rbd/ns/image
J rbd ls rbd/ns
J rbd info rbd/ns/image
J rbd namespace ls
J rbd du rbd/ns/image
rbd namespace rm rbd/ns
rbd rm --no-progress rbd/ns/image
rbd namespace rm rbd/ns
rbd namespace rm rbd/ns
J rbd group ls
rbd group create g
rbd group create g
rbd group image add g j
rbd group image add g im
rbd group image add g im
rbd group image add g nope
rbd group image add nope im
J rbd group ls
J rbd group image ls g
J rbd group image ls nope
J rbd info im
J rbd group snap ls g
rbd group snap create g@gs
rbd group snap create g@gs
rbd group snap create nope@gs
J rbd group snap ls g
J rbd snap ls --all im
J rbd snap ls im
rbd group snap rename g@gs gs2
rbd group snap rename g@gs gs3
rbd group snap rollback --no-progress g@gs2
rbd group snap rollback --no-progress g@gs
rbd rm --no-progress im
rbd group snap rm g@gs2
rbd group snap rm g@gs2
rbd group image rm g im
rbd group image rm g im
rbd group rename g h
rbd group rename g i
rbd group rm h
rbd group rm h
J rbd group ls
J rbd mirror pool info other
J rbd mirror pool status other
rbd mirror image enable other/copy
rbd mirror pool enable other nonsense
rbd mirror pool enable nopool image
rbd mirror pool enable --site-name here other image
rbd mirror pool enable other image
J rbd mirror pool info other
rbd mirror pool peer add other client.x@there
rbd mirror pool peer add other client.x@there
rbd mirror pool peer add other nonsense
rbd mirror pool peer set other {peer:other} client client.y
rbd mirror pool peer set other {peer:other} nonsense x
rbd mirror pool peer set other {peer:other} mon-host 1.2.3.4
J rbd mirror pool info other
J rbd mirror pool info --all other
bash -c "rbd mirror pool peer bootstrap create other | base64 -d | tr -d '0-9a-zA-Z+/='"
rbd mirror pool peer bootstrap create rbd
rbd mirror pool peer bootstrap import other zeros
rbd mirror image enable other/copy
rbd mirror image enable other/deep journal
rbd mirror image enable other/copy snapshot
rbd mirror image enable other/copy snapshot
rbd mirror image enable other/nope snapshot
rbd create --size 5M --image-feature layering,exclusive-lock,journaling other/jm
rbd mirror image enable other/jm journal
J rbd info other/copy
J rbd info other/jm
J rbd mirror pool status other
J rbd mirror pool status --verbose other
J rbd mirror image status other/copy
J rbd mirror image status other/jm
J rbd mirror image status other/deep
J rbd mirror image status other/nope
rbd mirror image snapshot other/copy
rbd mirror image snapshot other/jm
rbd mirror image snapshot other/nope
J rbd snap ls --all other/copy
J rbd journal status --image other/jm
rbd mirror image demote other/copy
rbd mirror image demote other/copy
J rbd info other/copy
J rbd snap ls --all other/copy
rbd bench --io-type write --io-size 4096 --io-total 4096 --io-threads 1 other/copy
rbd mirror image resync other/copy
rbd mirror image promote other/copy
rbd mirror image promote other/copy
rbd mirror image promote --force other/copy
rbd mirror image promote other/nope
J rbd info other/copy
rbd mirror image resync other/copy
rbd mirror image demote other/jm
J rbd mirror image status other/jm
rbd mirror image promote other/jm
rbd mirror pool demote other
rbd mirror pool promote other
rbd mirror pool promote --force other
J rbd mirror pool status --verbose other
rbd mirror image disable other/jm
rbd mirror image disable other/jm
rbd mirror image disable --force other/copy
rbd mirror pool peer remove other {peer:other}
rbd mirror pool peer remove other 11111111-2222-3333-4444-555555555555
rbd mirror pool disable other
rbd mirror pool disable other
J rbd mirror pool info other
J rbd mirror pool info nopool
rbd mirror pool enable other pool
J rbd mirror pool info other
J rbd mirror pool status other
rbd mirror pool disable other
rbd migration prepare renamed other/moved
rbd migration prepare nope other/moved2
rbd migration prepare renamed other/moved
J rbd status other/moved
J rbd info other/moved
J rbd ls other
J rbd ls
J rbd trash ls --all
rbd migration commit --no-progress other/moved
rbd migration execute --no-progress other/moved
rbd migration execute --no-progress nope
J rbd status other/moved
rbd migration commit --no-progress other/moved
rbd migration commit --no-progress other/moved
J rbd info other/moved
rbd migration prepare other/moved back
rbd migration abort --no-progress back
rbd migration abort --no-progress back
J rbd info other/moved
rbd sparsify --no-progress im
rbd sparsify --no-progress --sparse-size 16K im
rbd sparsify --no-progress --sparse-size 5 im
rbd sparsify --no-progress nope
J rbd diff im
rbd create --size 32M secret
rbd encryption format secret luks1 pass
rbd encryption format secret luks3 pass
rbd encryption format secret luks2 nofile
rbd encryption format nope luks2 pass
bash -c "rbd export --no-progress secret luks; head -c 8 luks | od -c"
J rbd info secret
- bash -c "truncate -s 3M sparse; head -c 8192 /dev/zero | tr '\\\\0' y >> sparse; truncate -s 9M sparse; printf end >> sparse"
rbd import --no-progress --object-size 64K --stripe-unit 4096 --stripe-count 3 sparse wide
rbd import --no-progress --sparse-size 4M sparse sp
rbd diff wide
rbd diff sp
J rbd du --exact wide
bash -c "cat sparse | rbd import --no-progress - piped; rbd export --no-progress piped - | sha256sum"
rbd snap create --no-progress sp@a
rbd bench --io-type write --io-size 4096 --io-total 16384 --io-threads 1 --io-pattern full-seq sp
rbd snap create --no-progress sp@b
rbd resize --no-progress --allow-shrink --size 2M sp
rbd snap create --no-progress sp@c
rbd resize --no-progress --size 7M sp
J rbd du --merge-snapshots sp
rbd diff --from-snap a sp
rbd diff --from-snap b sp@c
rbd diff --whole-object --from-snap a sp@c
bash -c "rbd export-diff --no-progress sp@a e1; rbd export-diff --no-progress --from-snap a sp@b e2; rbd export-diff --no-progress --from-snap b sp@c e3; rbd export-diff --no-progress --whole-object --from-snap c sp e4"
bash -c "rbd merge-diff --no-progress e1 e2 - | rbd merge-diff --no-progress - e3 e123; sha256sum e1 e2 e3 e4 e123"
bash -c "rbd create --size 1M into; rbd import-diff --no-progress e123 into; rbd import-diff --no-progress e4 into; rbd export --no-progress into - | sha256sum; rbd export --no-progress sp - | sha256sum"
rbd snap ls into
rbd snap rollback --no-progress sp@b
rbd diff --from-snap b sp
rbd create --size 4M --image-feature layering flat
rbd bench --io-type write --io-size 4096 --io-total 16384 --io-threads 1 flat
rbd snap create --no-progress flat@s
rbd snap protect flat@s
rbd clone --image-feature layering --rbd-default-clone-format 1 flat@s old1
rbd clone --rbd-default-clone-format 1 flat@s deep1
rbd snap create --no-progress old1@x
rbd snap create --no-progress deep1@x
rbd bench --io-type write --io-size 4096 --io-total 8192 --io-threads 1 deep1
rbd diff --from-snap x deep1
rbd flatten --no-progress old1
rbd flatten --no-progress deep1
J rbd info old1@x
J rbd info deep1@x
rbd snap unprotect flat@s
rbd snap rm --no-progress old1@x
rbd snap unprotect flat@s
rbd clone --rbd-default-clone-format 2 sp@a kid
rbd snap create --no-progress kid@k
rbd clone --rbd-default-clone-format 2 kid@k grandkid
rbd children --descendants sp
rbd diff grandkid
rbd snap rm --no-progress sp@a
rbd snap rename sp@c sp@a
rbd snap ls --all sp
rbd trash mv sp
rbd trash rm --no-progress {trash:sp}
rbd trash restore {trash:sp}
rbd resize --no-progress --allow-shrink --size 1M grandkid
rbd resize --no-progress --size 9M grandkid
rbd diff grandkid
rbd snap create --no-progress grandkid@g
rbd flatten --no-progress grandkid
J rbd info grandkid@g
rbd snap ls --all kid
rbd snap limit set --limit 1 kid
rbd snap create --no-progress kid@more
rbd feature disable kid fast-diff
rbd object-map rebuild --no-progress kid@k
rbd feature enable kid fast-diff
J rbd du kid
rbd feature enable kid journaling --journal-splay-width 2 --journal-object-size 8M --journal-pool other
rbd journal info --image kid
rbd feature disable kid journaling exclusive-lock object-map fast-diff
J rbd info kid
rbd group create g2
rbd create --size 6M other/three
rbd group image add g2 sp
rbd group image add g2 other/three
rbd group snap create g2@1
rbd bench --io-type write --io-size 4096 --io-total 16384 --io-threads 1 sp
rbd group snap create --skip-quiesce g2@2
rbd group snap ls g2
rbd group snap rollback --no-progress g2@1
rbd clone --rbd-default-clone-format 2 sp@1 gclone
rbd group image rm g2 other/three
rbd group snap rollback --no-progress g2@2
rbd snap ls --all sp
rbd group rm g2
rbd snap ls --all sp
rbd trash mv old1 --expires-at 2020-01-01
rbd trash mv wide --expires-at 2099-01-01
rbd trash purge --no-progress --expired-before 2021-01-01 rbd
rbd trash ls --all
rbd trash purge --no-progress --expired-before 2100-01-01 rbd
rbd trash ls --all
rbd namespace create rbd/n1
rbd namespace create rbd/n2
rbd create --size 6M rbd/n1/y
rbd snap create --no-progress rbd/n1/y@s
rbd clone --rbd-default-clone-format 2 rbd/n1/y@s other/ykid
rbd rename rbd/n1/y rbd/n2/y
rbd migration prepare rbd/n1/y rbd/n2/moved
J rbd info other/ykid
rbd children rbd/n2/moved
rbd migration execute --no-progress rbd/n2/moved
rbd migration commit --no-progress rbd/n2/moved
rbd children rbd/n2/moved
rbd migration prepare --object-size 1M --stripe-unit 64K --stripe-count 2 --data-pool other flat
rbd bench --io-type write --io-size 4096 --io-total 16384 --io-threads 1 --io-pattern rand flat
rbd status flat
rbd migration abort --no-progress flat
J rbd info flat
- bash -c "printf '%s' '{\\"type\\":\\"raw\\",\\"stream\\":{\\"type\\":\\"file\\",\\"file_path\\":\\"sparse\\"},\\"snapshots\\":[{\\"type\\":\\"raw\\",\\"name\\":\\"snap1\\",\\"stream\\":{\\"type\\":\\"file\\",\\"file_path\\":\\"data\\"}}]}' > spec"
rbd migration prepare --import-only --source-spec-path spec raw1
rbd status raw1
bash -c "rbd export --no-progress raw1 - | sha256sum; rbd export --no-progress raw1@snap1 - | sha256sum"
rbd migration execute --no-progress raw1
rbd migration commit --no-progress raw1
rbd diff --from-snap snap1 raw1
rbd create --image-format 1 --size 5M v1
rbd snap create --no-progress v1@s
rbd bench --io-type write --io-size 4096 --io-total 16384 --io-threads 1 v1
rbd diff --from-snap s v1
rbd lock add v1 "a b"
rbd lock ls v1
rbd rename v1 v1b
rbd snap rollback --no-progress v1b@s
rbd migration prepare v1b
rbd migration execute --no-progress v1b
rbd migration commit --no-progress v1b
J rbd info v1b
rbd create --size 1M "a name with spaces"
rbd create --size 1M Ωunicode
J rbd ls
J rbd pool stats rbd
J rbd pool stats other
J rbd pool stats nopool
J rbd device ls
rbd device unmap nodevice
rbd snap purge --no-progress a
rbd snap unprotect a@s1
rbd rm --no-progress c3
rbd snap unprotect a@s1
rbd snap purge --no-progress a
rbd snap purge --no-progress a
rbd snap purge --no-progress nope
rbd rm --no-progress a
rbd rm --no-progress j
rbd rm --no-progress split
rbd rm --no-progress striped
J rbd ls -l
J rbd ls -l other
rbd bogus
rbd snap bogus
rbd info
rbd create
rbd help bogus
"""

# What `rbd` says of the manager's module rbd_support and of the kernel is not compared here.
DIFFERENT = [
    ("rbd snap ls --all im", r"word (missing|extra) (15|16)", "both images of the group get a snapshot at once: which of them gets the lower id is the turn of librbd's threads "
     "(on one cluster one of two came first 28 times, the other twice)"),
    ("rbd mirror pool status .*", r"word extra (95|Operation|failed|not|query|services|supported|to|rbd)", "monitors do not pass commands of the manager on to it: `rbd` does not learn of mirror daemons"),
]

# Commands that look and change nothing.
LOOKS = re.compile(
    r"rbd .*\b(ls|info|status|du|diff|children|stats)\b.*|rbd (journal inspect|object-map check|.* get) .*|bash -c .*export.*")

MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"


def words(text):
    """Words and numbers, without ids, times, addresses, and what counts progress or speed."""
    for pattern in (
            r"\d+% complete\.*",
            r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
            r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun) (%s) +\d+ \d+:\d+:\d+ \d+" % MONTHS,
            r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*([+-]\d{4}|Z)?",
            r"v[12]:\S+|\d+\.\d+\.\d+\.\d+:\d+/\d+|client\.\d+|\S*real-ceph-\w+\S*|\S*loligo-test-\w+\S*",
            r"(rbd|journal)_data\.[0-9a-f.]+|journal\.[0-9a-f]{9,}|\.group\.\d+_[0-9a-f]+_[0-9a-f]+",
            r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{9,40}\b",
            # An id of librbd's whose random half is small (it is not padded).
            r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{6,8}\b",
            r"\b0x[0-9a-f]{6,}|\b[0-9a-f]{12} -?\d+ ",
            r"(?m)^ *\d+ +\d+ +[\d.e+-]+ +([\d.e+-]+ )?.*/s.*$|elapsed:.*|(read|write)_ops:.*",
            r'"(cookie|watcher|address)":\S+|cookie=\d+'):
        text = re.sub(pattern, " ", text)
    return set(re.findall(r"[\w.%@/-]+", text))


def trash(parsed, name):
    return next((i["id"] for i in parsed("rbd trash ls --all") if i["name"] == name), "missing")


def locker(parsed, which):
    image, lock_id = which.split("/")
    return next((lock["locker"] for lock in parsed(f"rbd lock ls {image}") if lock["id"] == lock_id), "missing")


def peer(parsed, pool):
    return next((p["uuid"] for p in parsed(f"rbd mirror pool info {pool}")["peers"]), "missing")


def identity(parsed, image):
    return parsed(f"rbd info {image}")["id"]


if __name__ == "__main__":
    sys.exit(comparison.main(comparison.Comparison(
        commands=COMMANDS, different=DIFFERENT, looks=LOOKS, attempts=4, patient=re.compile("settle|rbd encryption format secret luks1.*"), words=words, values=True,
        keys_are_data=re.compile(r"^[0-9a-f]{9,}$"),
        variables={"trash": trash, "locker": locker, "peer": peer, "id": identity})))
