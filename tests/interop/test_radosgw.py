"""Debian's unmodified `radosgw` on our cluster, used by S3 (boto3) and by `radosgw-admin`: objects, listings by pages, multipart uploads, versions, lifecycle,
garbage, usage, resharding; in the end nothing is left in its pools. About 50 s."""
import concurrent.futures
import threading
import time
import unittest
import urllib.error
import urllib.request

from botocore.exceptions import ClientError

from cluster import Cluster
from radosgw import KEY, SECRET, Gateway, pages

PART = bytes(range(256)) * (5 << 12)


class Radosgw(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(osds=3))
        cls.gateway = cls.enterClassContext(Gateway(cls.cluster))
        user = cls.gateway.json("user", "create", "--uid=u1", "--display-name=One", f"--access-key={KEY}", f"--secret-key={SECRET}")
        assert user["keys"] == [{"user": "u1", "access_key": KEY, "secret_key": SECRET}], user
        cls.s3 = cls.gateway.s3()

    def refused(self, code, call, **args):
        with self.assertRaises(ClientError) as caught:
            call(**args)
        self.assertEqual(caught.exception.response["Error"]["Code"], code)

    def body(self, bucket, key, **args):
        return self.s3.get_object(Bucket=bucket, Key=key, **args)["Body"].read()

    def keys(self, bucket, **args):
        return [o["Key"] for page in pages(self.s3, "list_objects_v2", bucket, **args) for o in page.get("Contents", [])]

    def versions(self, bucket, **args):
        """(key, version, whether it is the newest, size or None of a marker) in the order they come in, by key."""
        found = []
        for page in pages(self.s3, "list_object_versions", bucket, **args):
            found += [(v["Key"], v["VersionId"], v["IsLatest"], v["Size"]) for v in page.get("Versions", [])]
            found += [(m["Key"], m["VersionId"], m["IsLatest"], None) for m in page.get("DeleteMarkers", [])]
        return found

    def test_1_objects(self):
        s3, big = self.s3, PART + PART[:1 << 20]
        s3.create_bucket(Bucket="objects")
        self.assertEqual([b["Name"] for b in s3.list_buckets()["Buckets"]], ["objects"])
        s3.put_object(Bucket="objects", Key="small", Body=b"first")
        s3.put_object(Bucket="objects", Key="small", Body=b"hello", Metadata={"a": "b"}, ContentType="text/x")
        s3.put_object(Bucket="objects", Key="_odd/\u00e4 +%?&", Body=b"")
        s3.put_object(Bucket="objects", Key="big", Body=big)
        self.assertEqual(self.body("objects", "small"), b"hello")
        self.assertEqual(self.body("objects", "big"), big)
        self.assertEqual(self.body("objects", "big", Range="bytes=4194300-4194309"), big[4194300:4194310])
        self.assertEqual(self.body("objects", "big", Range="bytes=-7"), big[-7:])
        self.refused("InvalidRange", s3.get_object, Bucket="objects", Key="small", Range="bytes=100-")
        head = s3.head_object(Bucket="objects", Key="small")
        self.assertEqual((head["ContentLength"], head["Metadata"], head["ContentType"]), (5, {"a": "b"}, "text/x"))
        self.refused("PreconditionFailed", s3.get_object, Bucket="objects", Key="small", IfMatch='"x"')
        # A copy shares the tail of what it was copied from.
        s3.copy_object(Bucket="objects", Key="copy", CopySource={"Bucket": "objects", "Key": "big"})
        s3.delete_object(Bucket="objects", Key="big")
        self.refused("NoSuchKey", s3.get_object, Bucket="objects", Key="big")
        self.assertEqual(self.body("objects", "copy"), big)
        s3.copy_object(Bucket="objects", Key="small", CopySource={"Bucket": "objects", "Key": "small"}, MetadataDirective="REPLACE", Metadata={"n": "m"})
        self.assertEqual(s3.head_object(Bucket="objects", Key="small")["Metadata"], {"n": "m"})
        # Who may.
        url = f"http://localhost:{self.gateway.port}/objects/small"
        with self.assertRaises(urllib.error.HTTPError):
            urllib.request.urlopen(url)
        signed = s3.generate_presigned_url("get_object", Params={"Bucket": "objects", "Key": "small"}, ExpiresIn=60)
        self.assertEqual(urllib.request.urlopen(signed).read(), b"hello")
        s3.put_object_acl(Bucket="objects", Key="small", ACL="public-read")
        self.assertEqual(urllib.request.urlopen(url).read(), b"hello")
        self.refused("SignatureDoesNotMatch", self.gateway.s3(secret="other").list_buckets)
        s3.put_object_tagging(Bucket="objects", Key="small", Tagging={"TagSet": [{"Key": "k", "Value": "v"}]})
        self.assertEqual(s3.get_object_tagging(Bucket="objects", Key="small")["TagSet"], [{"Key": "k", "Value": "v"}])
        self.assertEqual(self.keys("objects"), ["_odd/\u00e4 +%?&", "copy", "small"])
        self.refused("BucketNotEmpty", s3.delete_bucket, Bucket="objects")
        self.assertEqual(self.gateway.stats("objects")[0]["rgw.main"], (3, len(big) + 5))
        gone = s3.delete_objects(Bucket="objects", Delete={"Objects": [{"Key": "copy"}, {"Key": "none"}]})["Deleted"]
        self.assertEqual(sorted(o["Key"] for o in gone), ["copy", "none"])

    def test_2_listings(self):
        wanted = sorted([f"d{n % 7}/e{n % 3}/{n:04}" for n in range(1100)] + ["a", "b/", "b/c", "d3", "d3-", "d3/", "\u00fcber"], key=str.encode)
        self.s3.create_bucket(Bucket="listings")
        own = threading.local()

        def put(key):
            if not hasattr(own, "s3"):
                own.s3 = self.gateway.s3()
            own.s3.put_object(Bucket="listings", Key=key, Body=b"x")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(put, wanted))
        self.assertEqual(self.keys("listings"), wanted)
        self.assertEqual(self.keys("listings", PaginationConfig={"PageSize": 137}), wanted)
        self.assertEqual(self.keys("listings", Prefix="d3/"), [key for key in wanted if key.startswith("d3/")])
        self.assertEqual(self.keys("listings", StartAfter="d6/e1/0500"), [key for key in wanted if key.encode() > b"d6/e1/0500"])
        for method, size in (("list_objects", 2), ("list_objects", 1000), ("list_objects_v2", 3)):
            found = list(pages(self.s3, method, "listings", Delimiter="/", PaginationConfig={"PageSize": size}))
            self.assertEqual([o["Key"] for page in found for o in page.get("Contents", [])], ["a", "d3", "d3-", "\u00fcber"])
            self.assertEqual([p["Prefix"] for page in found for p in page.get("CommonPrefixes", [])], ["b/", *[f"d{n}/" for n in range(7)]])
        page = self.s3.list_objects(Bucket="listings", Prefix="d3/e", Delimiter="0", MaxKeys=2)
        self.assertEqual(([p["Prefix"] for p in page["CommonPrefixes"]], page["IsTruncated"]), (["d3/e0", "d3/e1/0"], True))
        self.assertEqual(len(self.gateway.json("bi", "list", "--bucket=listings", "--max-entries=5000")), len(wanted))

    def test_3_multipart(self):
        s3 = self.s3
        s3.create_bucket(Bucket="multipart")
        upload = s3.create_multipart_upload(Bucket="multipart", Key="m", Metadata={"k": "v"})["UploadId"]
        parts = []
        for number, body in ((1, PART), (2, PART[::-1]), (3, b"tail")):
            tag = s3.upload_part(Bucket="multipart", Key="m", UploadId=upload, PartNumber=number, Body=body)["ETag"]
            parts.append({"PartNumber": number, "ETag": tag})
        self.assertEqual([u["Key"] for u in s3.list_multipart_uploads(Bucket="multipart")["Uploads"]], ["m"])
        listed = s3.list_parts(Bucket="multipart", Key="m", UploadId=upload, PartNumberMarker=1)["Parts"]
        self.assertEqual([(p["PartNumber"], p["Size"]) for p in listed], [(2, len(PART)), (3, 4)])
        s3.complete_multipart_upload(Bucket="multipart", Key="m", UploadId=upload, MultipartUpload={"Parts": parts})
        self.assertEqual(self.body("multipart", "m"), PART + PART[::-1] + b"tail")
        self.assertEqual(self.body("multipart", "m", Range=f"bytes={len(PART) - 2}-{len(PART) + 1}"), PART[-2:] + PART[:-3:-1])
        self.assertEqual(s3.head_object(Bucket="multipart", Key="m")["Metadata"], {"k": "v"})
        upload = s3.create_multipart_upload(Bucket="multipart", Key="aborted")["UploadId"]
        s3.upload_part(Bucket="multipart", Key="aborted", UploadId=upload, PartNumber=1, Body=PART)
        s3.abort_multipart_upload(Bucket="multipart", Key="aborted", UploadId=upload)
        self.assertNotIn("Uploads", s3.list_multipart_uploads(Bucket="multipart"))
        self.refused("NoSuchUpload", s3.upload_part, Bucket="multipart", Key="aborted", UploadId=upload, PartNumber=2, Body=b"x")
        self.assertEqual(self.gateway.stats("multipart")[0]["rgw.main"], (1, 2 * len(PART) + 4))

    def test_4_versions(self):
        s3 = self.s3
        s3.create_bucket(Bucket="versions")
        s3.put_object(Bucket="versions", Key="old", Body=b"before")
        s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Enabled"})
        ids = [s3.put_object(Bucket="versions", Key="a", Body=b"x" * n)["VersionId"] for n in (1, 2, 3)]
        new = s3.put_object(Bucket="versions", Key="old", Body=b"after")["VersionId"]
        wanted = [("a", ids[2], True, 3), ("a", ids[1], False, 2), ("a", ids[0], False, 1), ("old", new, True, 5), ("old", "null", False, 6)]
        self.assertEqual(self.versions("versions"), wanted)
        self.assertEqual(self.versions("versions", PaginationConfig={"PageSize": 1}), wanted)
        self.assertEqual((self.body("versions", "a"), self.body("versions", "a", VersionId=ids[0]), self.body("versions", "old", VersionId="null")), (b"xxx", b"x", b"before"))
        marker = s3.delete_object(Bucket="versions", Key="a")["VersionId"]
        self.refused("NoSuchKey", s3.get_object, Bucket="versions", Key="a")
        self.assertEqual(self.keys("versions"), ["old"])
        self.assertEqual([v[:3] for v in self.versions("versions", Prefix="a") if v[3] is None], [("a", marker, True)])
        s3.delete_object(Bucket="versions", Key="a", VersionId=marker)
        s3.delete_object(Bucket="versions", Key="a", VersionId=ids[2])
        self.assertEqual(self.body("versions", "a"), b"xx")
        s3.put_bucket_versioning(Bucket="versions", VersioningConfiguration={"Status": "Suspended"})
        for body in (b"null", b"null 2"):
            s3.put_object(Bucket="versions", Key="a", Body=body)
        self.assertEqual(self.versions("versions", Prefix="a"), [("a", "null", True, 6), ("a", ids[1], False, 2), ("a", ids[0], False, 1)])
        s3.delete_object(Bucket="versions", Key="a")
        self.assertEqual(self.versions("versions", Prefix="a"), [("a", ids[1], False, 2), ("a", ids[0], False, 1), ("a", "null", True, None)])
        self.gateway.admin("bucket", "reshard", "--bucket=versions", "--num-shards=13")
        self.assertEqual(self.versions("versions", Prefix="a"), [("a", ids[1], False, 2), ("a", ids[0], False, 1), ("a", "null", True, None)])
        for key, version, *_ in self.versions("versions"):
            s3.delete_object(Bucket="versions", Key=key, VersionId=version)
        self.assertEqual(self.gateway.json("bi", "list", "--bucket=versions"), [])
        s3.delete_bucket(Bucket="versions")

    def test_5_lifecycle(self):
        s3 = self.s3
        s3.create_bucket(Bucket="lifecycle")
        for key in ("x/1", "x/2", "y"):
            s3.put_object(Bucket="lifecycle", Key=key, Body=b"1")
        upload = s3.create_multipart_upload(Bucket="lifecycle", Key="x/m")["UploadId"]
        s3.upload_part(Bucket="lifecycle", Key="x/m", UploadId=upload, PartNumber=1, Body=b"part")
        rule = {"ID": "r", "Status": "Enabled", "Filter": {"Prefix": "x/"}, "Expiration": {"Days": 1}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}
        s3.put_bucket_lifecycle_configuration(Bucket="lifecycle", LifecycleConfiguration={"Rules": [rule]})
        self.assertEqual([r["ID"] for r in s3.get_bucket_lifecycle_configuration(Bucket="lifecycle")["Rules"]], ["r"])
        self.assertEqual([entry["status"] for entry in self.gateway.json("lc", "list")], ["UNINITIAL"])
        time.sleep(2)
        self.gateway.admin("lc", "process")
        self.assertEqual(self.keys("lifecycle"), ["y"])
        self.assertNotIn("Uploads", s3.list_multipart_uploads(Bucket="lifecycle"))
        s3.delete_bucket_lifecycle(Bucket="lifecycle")
        self.assertEqual(self.gateway.json("lc", "list"), [])

    def test_6_resharding(self):
        s3, gateway, wanted = self.s3, self.gateway, [f"k{n:02}" for n in range(40)]
        s3.create_bucket(Bucket="resharded")
        for key in wanted:
            s3.put_object(Bucket="resharded", Key=key, Body=b"x")
        gateway.admin("reshard", "add", "--bucket=resharded", "--num-shards=17")
        self.assertEqual([entry["bucket_name"] for entry in gateway.json("reshard", "list")], ["resharded"])
        gateway.admin("reshard", "process")
        self.assertEqual(gateway.json("reshard", "list"), [])
        self.assertEqual(gateway.stats("resharded"), ({"rgw.main": (40, 40)}, 17))
        self.assertEqual(self.keys("resharded"), wanted)
        s3.put_object(Bucket="resharded", Key="more", Body=b"x")
        s3.delete_object(Bucket="resharded", Key=wanted[0])
        self.assertEqual(self.keys("resharded"), [*wanted[1:], "more"])

    def test_7_usage(self):
        def shown():
            return {c["category"] for e in self.gateway.json("usage", "show", "--uid=u1")["entries"] for b in e["buckets"] for c in b["categories"]}
        self.cluster.wait(lambda: {"put_obj", "get_obj", "delete_obj", "list_bucket"} <= shown(), 10, "the usage is written down")

        def trimmed():
            """The gateway writes what it knows once a second: some of it after the first time."""
            self.gateway.admin("usage", "trim", "--uid=u1")
            return not shown()
        self.cluster.wait(trimmed, 10, "no usage is left")

    def test_8_nothing_is_left(self):
        gateway = self.gateway
        self.assertTrue(gateway.json("gc", "list", "--include-all"))
        for bucket in [b["Name"] for b in self.s3.list_buckets()["Buckets"]]:
            gateway.admin("bucket", "rm", f"--bucket={bucket}", "--purge-objects")
        self.assertEqual(self.s3.list_buckets()["Buckets"], [])
        gateway.admin("gc", "process", "--include-all")
        self.assertEqual(gateway.json("gc", "list", "--include-all"), [])
        for pool in ("data", "index", "non-ec"):
            left = self.cluster.run("rados", "-p", f"default.rgw.buckets.{pool}", "ls", "--all").stdout.decode()
            self.assertEqual(left, "", pool)


if __name__ == "__main__":
    # boto3 leaves its connections open.
    unittest.main(warnings="ignore")
