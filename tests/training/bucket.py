"""A bucket in memory that behaves as those of GCS and S3 do in Beam: it has files, and no folders."""

import io
from typing import ClassVar

from apache_beam.io.filesystem import CompressedFile, CompressionTypes, FileMetadata, FileSystem


class Bucket(FileSystem):
    """The file system of paths such as `bucket://b/in.txt`; `files` has their contents."""

    files: ClassVar[dict[str, bytes]] = {}

    @classmethod
    def scheme(cls):
        return "bucket"

    def has_dirs(self):
        return False

    def mkdirs(self, path):
        pass

    def _list(self, dir_or_prefix):
        return [self.metadata(path) for path in sorted(self.files) if path.startswith(dir_or_prefix)]

    def create(self, path, mime_type="", compression_type=CompressionTypes.AUTO):
        files = self.files

        class File(io.BytesIO):
            def close(self):
                if not self.closed:
                    files[path] = self.getvalue()
                super().close()

        return self._unpacked(File(), compression_type)

    def open(self, path, mime_type="", compression_type=CompressionTypes.AUTO):
        return self._unpacked(io.BytesIO(self.files[path]), compression_type)

    @staticmethod
    def _unpacked(file, compression_type):
        if compression_type == CompressionTypes.UNCOMPRESSED:
            return file
        return CompressedFile(file, compression_type=compression_type)

    def rename(self, source_file_names, destination_file_names):
        for source, destination in zip(source_file_names, destination_file_names, strict=True):
            self.files[destination] = self.files.pop(source)

    def delete(self, paths):
        for path in paths:  # one that ends in a slash means all files below
            for file in [each for each in self.files if each == path or (path[-1] == "/" and each.startswith(path))]:
                del self.files[file]

    def exists(self, path):
        return path in self.files

    def metadata(self, path):
        return FileMetadata(path, len(self.files[path]), 0)

    join = split = copy = size = last_updated = checksum = NotImplemented  # `zoo batch` needs none of them
